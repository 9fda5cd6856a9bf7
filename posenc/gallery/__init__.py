"""What the schemes are, drawn from the schemes themselves: no formula stands here a second time.

    python -m posenc.gallery --out=DIR

writes a PNG per picture and gallery.html, one page with sliders. The modules: rotary, biases and
permutation compute by calling the hooks of schemes; draw_* are the pictures; pictures lists them with
their words; grids and page make the interactive page.
"""
