"""The parts that train.py puts together: settings, optimiser, train step, checkpoints, metrics, devices."""
