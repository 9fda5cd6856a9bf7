"""gallery.html in a real browser, and the numbers behind it that take long to make."""

import numpy as np
import pytest

from posenc.gallery import biases, grids, page, permutation, style

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    file = tmp_path_factory.mktemp("gallery") / "gallery.html"
    file.write_text(page.build(biases.new_schemes()), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{word}")
    options.add_argument("--window-size=1100,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield driver
    driver.quit()


def until(browser, condition):
    """Waits for it, 30 seconds at most: the browser answers before a page is loaded or drawn again."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 30, poll_frequency=0.1).until(lambda _: condition())


def load(browser, address):
    browser.get(address)
    ready = "return document.readyState === 'complete' && location.href === arguments[0]"
    until(browser, lambda: browser.execute_script(ready, address))


def emulate(browser, **media):
    features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def drawing(browser, section):
    """All that the plots of a section show, as one text."""
    return browser.execute_script(
        "return JSON.stringify([...document.querySelectorAll(`#${arguments[0]} .plot`)].map("
        "plot => [plot.data, plot.layout.shapes, plot.layout.xaxis.range]))",
        section,
    )


@pytest.mark.browser
def test_every_control_moves_its_plots_by_keyboard_and_nothing_is_reported(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    load(browser, address)
    plots = browser.find_elements(By.CSS_SELECTOR, ".plot .main-svg")
    assert len(plots) >= sum(len(section.plots) for section in page.SECTIONS)
    for section in page.SECTIONS:
        for name in section.controls:
            element = browser.find_element(By.ID, f"{section.name}-{name}")
            before = drawing(browser, section.name)
            last = int(element.get_attribute("max") or 0)
            back = element.tag_name == "input" and int(element.get_property("value")) == last
            key = Keys.ARROW_LEFT if back else Keys.ARROW_DOWN
            if element.tag_name == "input" and not back:
                key = Keys.ARROW_RIGHT
            element.send_keys(key)
            until(browser, lambda b=before, s=section.name: drawing(browser, s) != b)
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []


@pytest.mark.browser
def test_sliders_of_one_name_move_together_and_say_their_value(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    load(browser, address)
    browser.find_element(By.ID, "scalings-factor").send_keys(Keys.ARROW_RIGHT)
    other = browser.find_element(By.ID, "decay-factor")
    until(browser, lambda: other.get_property("value") == "4")
    assert other.get_attribute("aria-valuetext") == "16"
    shown = browser.execute_script(
        "return document.querySelectorAll('#scalings .plot')[0].data.map(line => line.y[63])"
    )
    packed = grids.unpack(grids.pack(grids.bent()["wavelength"]))
    np.testing.assert_allclose(shown, 10 ** packed[page.START["base"], 4, :, 63], rtol=1e-9)


@pytest.mark.browser
def test_a_phone_scrolls_down_only(browser, address):
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    load(browser, address)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.plot .svg-container')].map(p => p.offsetWidth)"
    )
    assert max(widths) <= 360 and min(widths) > 250


@pytest.mark.browser
def test_dark_mode_and_back(browser, address):
    line = "return document.querySelector('#scalings .plot').data[0].line.color"
    paper = "return getComputedStyle(document.body).backgroundColor"
    emulate(browser, prefers_color_scheme="dark")
    load(browser, address)
    until(browser, lambda: browser.execute_script(line) == style.COLOURS["rope"][1])
    assert browser.execute_script(paper) == "rgb(22, 22, 22)"
    emulate(browser, prefers_color_scheme="light")
    until(browser, lambda: browser.execute_script(line) == style.COLOURS["rope"][0])
    assert browser.execute_script(paper) == "rgb(255, 255, 255)"
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_every_drawn_scheme_sees_the_order_of_tokens():
    changes = {name: permutation.change(name) for name in permutation.DRAWN}
    assert changes.pop("nope") < 1e-5
    assert all(change > 1e-3 for change in changes.values()), changes
