"""%%derate [NAME] in Jupyter and IPython: runs the cell and prints what it used."""
from derate.windows import window


def load(shell):
    def derate(line, cell):
        """Measures a cell; the line is the name of its window."""
        with window(line.strip() or "cell") as measured:
            shell.run_cell(cell)
        if measured.joules is None:
            print("derate: not measured")
        else:
            print(f"derate: {measured.time:.2f} s, {measured.joules:.0f} J")
    shell.register_magic_function(derate, "cell", "derate")
