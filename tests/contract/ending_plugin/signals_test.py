# SPDX-License-Identifier: Apache-2.0
"""A command that runs in a child process, because it loads plugins, takes signals as others do.

    signals_test.py VOXCONV PLUGIN
"""

import os
import pty
import signal
import subprocess
import sys
import time
import unittest

PLUGIN = sys.argv.pop(2)
VOXCONV = sys.argv.pop(1)
COMMON = ["--plugin", PLUGIN, "--threads", "1", "--input", "scene:sphere?n=300"]
HANG = [VOXCONV, "run", *COMMON, "--network", "sparseresnet21", "--width", "0.25", "--mapping",
        "ending:fault=hangs,voxels=0"]
LONG = [VOXCONV, "ab", *COMMON, "--a", "ending:fault=none/direct", "--b", "hash/direct",
        "--channels", "4,4", "--pairs", "1000000"]


def group_is_gone(group):
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


class Signals(unittest.TestCase):
    def end(self, command, signal_, word):
        """Sends the signal to the first process alone, once a line with the word was printed."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, start_new_session=True)
        lines = []
        if word:
            for line in process.stdout:
                lines.append(line)
                if word in line:
                    break
        time.sleep(1)
        process.send_signal(signal_)
        lines.append(process.communicate(timeout=60)[0])
        self.assertTrue(group_is_gone(process.pid))
        return process.returncode, "".join(lines)

    def test_a_signal_ends_both_processes(self):
        for signal_ in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            status, _ = self.end(HANG, signal_, "")
            self.assertEqual(status, -signal_)

    def test_an_interrupt_is_passed_on(self):
        status, output = self.end(LONG, signal.SIGINT, "verified")
        self.assertEqual(status, 0, output)
        self.assertIn("interrupted; ", output)

    def test_an_interrupt_of_a_terminal_comes_once(self):
        process, terminal = pty.fork()
        if process == 0:
            os.execv(LONG[0], LONG)
        printed = b""
        interrupted = False
        while True:
            try:
                block = os.read(terminal, 4096)
            except OSError:  # the terminal has no other end any more
                break
            if not block:
                break
            printed += block
            if not interrupted and b"verified" in printed:
                time.sleep(1)
                os.write(terminal, b"\x03")
                interrupted = True
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        self.assertEqual(status, 0, printed)
        self.assertIn(b"interrupted; ", printed)


if __name__ == "__main__":
    unittest.main()
