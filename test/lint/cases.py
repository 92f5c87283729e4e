"""Counts the cases of a lint test and prints those that fail."""


class Cases:
    """The cases that passed and those that failed so far."""

    def __init__(self):
        self.passed = self.failed = 0

    def count(self, good, message):
        """Counts one case; prints the message if it failed."""
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAIL {message}")

    def finish(self):
        """Prints the summary line that ctest and tools/mutants.py read, and returns the exit
        code."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0
