"""Instructions that request input, and a client that answers."""

import unittest

from machine import OneMachine


class Input(OneMachine, unittest.TestCase):
    def ask(self, code, *lines):
        """Runs code and answers each of its prompts. Returns its end and the prompts."""
        self.machine.begin(code, input=True)
        prompts = []
        for line in lines:
            prompts.append(self.machine.expect("input")["prompt"])
            self.machine.order(op="input", seq=self.machine.seq, line=line)
        return self.machine.finish(), prompts

    def test_input(self):
        end, prompts = self.ask("a = input('name? '); b = input(); [a, b]", "Ada", "")
        self.assertEqual((end["value"], prompts), ("['Ada', '']", ["name? ", ""]))

    def test_the_end_of_input(self):
        end, _ = self.ask("input('? ')", None)
        self.assertEqual(end["error"]["name"], "EOFError")

    def test_standard_input_line_by_line(self):
        code = "import sys\n[line for line in sys.stdin] + [sys.stdin.readline(), sys.stdin.read()]"
        end, _ = self.ask(code, "a", None, "b", "c", None)
        self.assertEqual(end["value"], "['a\\n', 'b\\n', 'c\\n']")

    def test_what_was_printed_comes_before_the_prompt(self):
        self.machine.begin("print('first', end=''); input('then')", input=True)
        self.machine.wait_output("first")
        self.machine.expect("input")
        self.machine.order(op="input", seq=self.machine.seq, line="")
        self.machine.finish()

    def test_an_interrupt_while_it_waits(self):
        self.machine.begin("input()", input=True)
        self.machine.expect("input")
        self.machine.interrupt()
        self.assertEqual(self.machine.finish()["how"], "interrupted")
        # a line that comes too late is dropped
        self.machine.order(op="input", seq=self.machine.seq, line="late")
        end, _ = self.ask("input()", "in time")
        self.assertEqual(end["value"], "'in time'")

    def test_only_the_main_thread_asks(self):
        code = """
import threading
caught = []
def ask():
    try:
        input()
    except EOFError as error:
        caught.append(type(error).__name__)
thread = threading.Thread(target=ask)
thread.start()
thread.join()
caught
"""
        end, _ = self.ask(code)
        self.assertEqual(end["value"], "['StdinNotAvailable']")

    def test_the_next_instruction_has_none(self):
        self.ask("input()", "x")
        self.assertEqual(self.machine.error("input()")["name"], "StdinNotAvailable")


if __name__ == "__main__":
    unittest.main()
