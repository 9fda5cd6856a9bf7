"""report.html as a reader meets it: in Chromium, from a file, with no network."""

import json
import time
from contextlib import contextmanager

import pytest
import report_samples as samples

pytestmark = pytest.mark.browser

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
DESKTOP, PHONE = (1280, 900), (360, 740)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    # an address at which nothing listens: whatever the page asked for would fail and be logged
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{word}")
    options.add_argument("--proxy-server=127.0.0.1:9")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # the path is given, so selenium does not look for a driver to download
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    from evaluation.report import write_report

    folder = tmp_path_factory.mktemp("report")
    write_report(samples.write_everything(folder), folder)
    return folder / "report.html"


def set_screen(driver, size=DESKTOP, scheme="light", script=True):
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})


def waited(driver, script, wanted, *arguments):
    """The value of the script once it is what is wanted, or what it still is after 30 seconds."""
    for _ in range(300):
        found = driver.execute_script(f"return {script}", *arguments)
        if found == wanted:
            break
        time.sleep(0.1)
    return found


def load(driver, path):
    """Opens the page and waits for all of it: the driver has been seen to return before."""
    driver.execute_script("window.before = true")
    driver.get(path.as_uri())
    ready = "!window.before && document.readyState === 'complete'"
    assert waited(driver, ready, True) is True


@contextmanager
def opened(driver, path, **screen):
    """The page, and at the end that it asked for nothing but itself and logged no message."""
    set_screen(driver, **screen)
    for kind in ("browser", "performance"):
        driver.get_log(kind)  # what an earlier page left
    load(driver, path)
    yield driver
    assert driver.get_log("browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [
        m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"
    ]
    assert path.as_uri() in urls
    assert [url for url in urls if not url.startswith(("file:", "data:", "blob:"))] == []
    set_screen(driver)


def choose(driver, name, value):
    """As a reader does: click a radio button or box, or choose in a list."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    found = driver.find_elements(By.NAME, name)
    if found[0].tag_name == "select":
        Select(found[0]).select_by_visible_text(value)
    else:
        (box,) = [item for item in found if item.get_attribute("value") == value]
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
        box.click()


CURVES = "document.querySelector('figure[data-plot=curves] .canvas')"
NAMED = f"{CURVES}.data.filter((trace) => trace.name)"


def test_every_plot_is_drawn(chromium, page):
    with opened(chromium, page) as driver:
        kinds = "[...document.querySelectorAll('figure')].map((f) => f.dataset.plot)"
        wanted = ["curves", "diagnostics", "position", "probes"]
        assert waited(driver, kinds, wanted) == wanted
        for kind in wanted:
            lines = "path.js-line" if kind != "diagnostics" else ".hm image, .hm path, image"
            count = driver.execute_script(
                "return document.querySelectorAll(arguments[0]).length",
                f"figure[data-plot={kind}] .canvas :is({lines})",
            )
            assert count >= 3, kind
        assert driver.execute_script(f"return {NAMED}.map((t) => t.name)") == list(samples.LOSSES)
        shown = driver.execute_script(f"return {NAMED}[3].y")  # rope: the mean of three seeds
        assert shown == pytest.approx([2.718281828**v for v in (1.80, 2.28, 2.83, 3.25, 3.45)])


def test_the_toggles_change_what_is_drawn(chromium, page):
    with opened(chromium, page) as driver:
        kind = f"{CURVES}._fullLayout.yaxis.type"
        title = f"{CURVES}._fullLayout.yaxis.title.text"
        assert driver.execute_script(f"return {kind}") == "log"
        choose(driver, "curves-scale", "linear")
        assert waited(driver, kind, "linear") == "linear"
        choose(driver, "curves-unit", "nats")
        assert waited(driver, title, "nats per token") == "nats per token"
        assert driver.execute_script(f"return {NAMED}[3].y[1]") == pytest.approx(2.28)
        choose(driver, "curves-unit", "bits")
        assert waited(driver, title, "bits per byte") == "bits per byte"
        assert driver.execute_script(f"return {NAMED}[3].y[1]") == pytest.approx(2.28 / 0.6931472)
        text = driver.execute_script(f"return {NAMED}[3].text[1]")
        assert "3360 targets, 3 documents" in text and "seeds and text" in text

        filled = f"{CURVES}.data.filter((trace) => trace.fill === 'toself').length"
        before = driver.execute_script(f"return {filled}")
        choose(driver, "curves-bands", "on")
        assert before == 6 and waited(driver, filled, 0) == 0
        dashed = f"{CURVES}.data.filter((trace) => trace.line?.dash === '4px,3px').length"
        assert driver.execute_script(f"return {dashed}") == 6
        choose(driver, "curves-cropped", "on")
        assert waited(driver, dashed, 0) == 0

        facts = "document.querySelector('figure[data-plot=curves] figcaption').textContent"
        assert "Fixed protocol, stride 4096" in driver.execute_script(f"return {facts}")
        choose(driver, "curves-view", "disjoint")
        assert "Disjoint protocol" in driver.execute_script(f"return {facts}")
        assert driver.execute_script(f"return {dashed}") == 0


def test_the_legend_switches_single_curves_by_the_keyboard(chromium, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    with opened(chromium, page) as driver:
        names = f"{NAMED}.map((trace) => trace.name)"
        boxes = driver.find_elements(By.NAME, "curves-curve")
        boxes[3].send_keys(Keys.SPACE)
        wanted = [name for name in samples.LOSSES if name != "rope"]
        assert waited(driver, names, wanted) == wanted
        none = driver.find_element(By.XPATH, "//figure[1]//button[.='none']")
        none.send_keys(Keys.ENTER)
        assert waited(driver, names, []) == []
        boxes[2].send_keys(Keys.SPACE)
        assert waited(driver, names, ["alibi"]) == ["alibi"]
        unit = driver.find_element(By.CSS_SELECTOR, "[name=curves-unit][value=perplexity]")
        unit.send_keys(Keys.ARROW_RIGHT)
        title = f"{CURVES}._fullLayout.yaxis.title.text"
        assert waited(driver, title, "nats per token") == "nats per token"
        unnamed = "[...document.querySelectorAll('input, select')].filter((c) => !c.labels.length)"
        assert driver.execute_script(f"return {unnamed}.length") == 0


def test_a_point_tells_its_interval_and_counts_under_the_mouse(chromium, page):
    from selenium.webdriver.common.action_chains import ActionChains

    with opened(chromium, page) as driver:
        x, y = driver.execute_script(
            f"const canvas = {CURVES}, all = canvas._fullLayout, box = canvas.getBoundingClientRect();"
            f"const rope = {NAMED}[3];"
            "return [box.left + all._size.l + all.xaxis.d2p(rope.x[2]),"
            "        box.top + all._size.t + all.yaxis.d2p(rope.y[2])]"
        )
        mouse = ActionChains(driver)
        mouse.w3c_actions.pointer_action.move_to_location(round(x), round(y))
        mouse.perform()
        label = f"{CURVES}.querySelector('.hoverlayer').textContent"
        assert waited(driver, f"{label} !== ''", True) is True
        words = driver.execute_script(f"return {label}")
        for part in ("rope", "length 256: 16.945 perplexity", "95 % interval for seeds and text"):
            assert part in words
        for part in (
            "3 seeds",
            "span 2.810 – 2.850 nats",
            "3360 targets",
            "3 documents",
            "105 windows",
        ):
            assert part in words


def test_maps_probes_and_differences_follow_their_choices(chromium, page):
    with opened(chromium, page) as driver:
        maps = "document.querySelector('figure[data-plot=diagnostics] .canvas')"
        values = f"{maps}.data.length"
        assert driver.execute_script(f"return {values}") == len(samples.LENGTHS)
        figures = (
            "[...document.querySelector('[name=diagnostics-figure]').options].map((o) => o.text)"
        )
        assert "unseen angles" not in driver.execute_script(f"return {figures}")
        choose(driver, "diagnostics-scheme", "rope")
        assert "unseen angles" in driver.execute_script(f"return {figures}")
        choose(driver, "diagnostics-figure", "unseen angles")
        assert waited(driver, values, 1) == 1
        assert driver.execute_script(f"return {maps}.data[0].z[0]") == pytest.approx(
            [0, 0.15, 0.3, 0.45, 0.6]
        )
        choose(driver, "diagnostics-scheme", "alibi")  # which has no angles
        assert waited(driver, values, 5) == 5

        depth = "document.querySelectorAll('figure[data-plot=probes] .canvas')[1]"
        assert driver.execute_script(f"return {depth}.data.length") == 3
        hidden = f"{depth}.parentElement.hidden"
        choose(driver, "probes-view", "copy")
        assert waited(driver, hidden, True) is True
        choose(driver, "probes-view", "passkey")
        assert waited(driver, hidden, False) is False

        shown = "[...document.querySelectorAll('.choice')].filter((t) => !t.hidden)"
        shown = f"{shown}.map((t) => t.dataset.length)"
        assert driver.execute_script(f"return {shown}") == ["1024"]
        choose(driver, "differences-length", "128")
        assert waited(driver, shown, ["128"]) == ["128"]


def test_dark_mode_is_followed_while_the_page_is_open(chromium, page):
    with opened(chromium, page) as driver:
        paper = f"{CURVES}._fullLayout.paper_bgcolor"
        line = f"{NAMED}[5].line.color"
        page_colour = "getComputedStyle(document.body).backgroundColor"
        assert driver.execute_script(f"return [{paper}, {line}]") == ["#ffffff", "#1A1A1A"]
        set_screen(driver, scheme="dark")
        assert waited(driver, paper, "#15171a") == "#15171a"
        assert driver.execute_script(f"return {line}") == "#F2F2F2"
        assert driver.execute_script(f"return {page_colour}") == "rgb(21, 23, 26)"
        set_screen(driver, scheme="light")
        assert waited(driver, paper, "#ffffff") == "#ffffff"


@pytest.mark.parametrize("hostile", [False, True])
def test_a_phone_scrolls_down_only(chromium, page, hostile, tmp_path):
    if hostile:
        page = hostile_page(tmp_path)
    with opened(chromium, page, size=PHONE) as driver:
        driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        widths = driver.execute_script(
            "return [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
        )
        assert widths == [360, 360, 360]
        plot = driver.execute_script(f"return {CURVES}.querySelector('svg').clientWidth")
        assert 300 <= plot <= 340


@pytest.mark.parametrize("width", [1400, 400])
def test_tables_say_where_they_go_on_and_names_stay_whole(chromium, tmp_path, width):
    """At its right end a table no longer says so; one that fits never does."""
    from evaluation.report import write_report

    page = wide_page(tmp_path, write_report)
    with opened(chromium, page, size=(width, 900)) as driver:
        frames = driver.execute_script(
            "return [...document.querySelectorAll('.frame')].map((f) => {"
            "  const box = f.querySelector('.scroll'), cue = f.querySelector('.cue');"
            "  const wide = box.scrollWidth > box.clientWidth, before = cue.offsetHeight > 0;"
            "  box.scrollLeft = 1e5; return [wide, before]; })"
        )
        shown = [pair for pair in frames if pair[0] or pair[1]]
        assert shown and all(wide == cue for wide, cue in frames)
        ended = "[...document.querySelectorAll('.frame')].filter((f) => f.matches('.more')).length"
        assert waited(driver, ended, 0) == 0
        back = "for (const b of document.querySelectorAll('.scroll')) b.scrollLeft = 0"
        driver.execute_script(back)
        assert waited(driver, ended, len(shown)) == len(shown)
        faded = "document.querySelector('.legend').matches('.more')"
        assert waited(driver, faded, width == 1400) is (width == 1400)
        # the lines of a name: the rectangles of its unbreakable parts are one each
        broken = driver.execute_script(
            "const found = [];"
            "for (const at of document.querySelectorAll('th[scope=row], .legend label > span'))"
            "  for (const node of at.childNodes) if (node.nodeType === 3) {"
            "    const range = document.createRange(); range.selectNodeContents(node);"
            "    const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top)));"
            "    if (lines.size > 1) found.push(node.textContent); }"
            "return found"
        )
        assert broken == []


def wide_page(folder, write_report):
    """More curves than a page has room for, with long names."""
    names = [f"yarn:factor={n},original_length=128" for n in range(2, 16)]
    about = {"seeds": 1, "targets": 9, "clusters": "9 windows", "ci_low": 0.5, "ci_high": 1.5}
    row = about | {"kind": "difference", "difference": 1.0, "verdict": "higher", "length": 64}
    pairs = [row | {"a": a, "b": b} for k, a in enumerate(names) for b in names[k + 1 :]]
    samples.write_lines(folder / "statistics.jsonl", pairs)
    lengths = [64 * 2**k for k in range(9)]
    records = [samples.record(s, n, 2 + k / 9) for k, s in enumerate(names) for n in lengths]
    write_report(records, folder)
    return folder / "report.html"


def hostile_page(folder):
    from evaluation.report import write_report

    write_report(samples.hostile_files(folder), folder)
    return folder / "report.html"


def test_hostile_names_do_nothing(chromium, tmp_path):
    with opened(chromium, hostile_page(tmp_path)) as driver:
        label = f"{NAMED}[0].name"
        shown = driver.execute_script(f"return {label}")
        assert "<" not in shown
        for plot in driver.execute_script(
            "return [...document.querySelectorAll('.canvas')].keys()"
        ):
            driver.execute_script(
                "const p = document.querySelectorAll('.canvas')[arguments[0]];"
                "Plotly.Fx.hover(p, [{curveNumber: p.data.length - 1, pointNumber: 0}])",
                plot,
            )
        time.sleep(0.5)
        assert driver.execute_script("return [window.hit, document.images.length]") == [None, 0]
        words = driver.execute_script("return document.querySelector('.legend label').textContent")
        assert words == samples.HOSTILE
        ours = "[...document.querySelectorAll('a')].filter((a) => !a.hash).length"
        assert driver.execute_script(f"return {ours}") == 0


def test_without_scripts_picture_and_tables_remain(chromium, page):
    set_screen(chromium, script=False)
    load(chromium, page)
    height = chromium.find_element("css selector", "noscript svg, .picture svg").size["height"]
    assert height > 300
    tables = chromium.find_elements("css selector", ".choice table")
    assert len(tables) == 5 and all(table.is_displayed() for table in tables)
    assert not any(c.is_displayed() for c in chromium.find_elements("css selector", ".controls"))
    set_screen(chromium)
