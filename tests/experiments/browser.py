# SPDX-License-Identifier: Apache-2.0
"""Pages in a browser without a screen and without a network."""

import pathlib
import re
import shutil
import subprocess
import tempfile

LIMIT_S = 120


def open_page(test, path, *options):
    """(the page's text after its scripts ran, what they wrote to the console). Skips `test` where no
    Chromium is installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        test.skipTest("no Chromium here (Debian: chromium)")
    with tempfile.TemporaryDirectory() as profile:
        result = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-dev-shm-usage",
             "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
             "--enable-logging=stderr", "--window-size=800,600", "--virtual-time-budget=5000",
             *options, "--dump-dom", f"file://{pathlib.Path(path).resolve()}"],
            capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT_S)
    test.assertEqual(result.returncode, 0, result.stderr)
    return result.stdout, re.findall(r"CONSOLE.*", result.stderr)
