"""The pictures that follow from no data: how a result is reached, what is built, and more."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .canvas import Canvas, Colours

QUESTIONS = (
    "system and C library",
    "Python",
    "torch's version and layout",
    "C++ ABI",
    "CUDA major",
    "driver and GPU",
    "libraries and symbols",
)
ANSWERS = {
    "accepted\nall is known, all is safe": "good",
    "rejected\nthe cause, and the fix": "bad",
    "unknown\nnot loaded: it could crash": "fair",
}


def draw_verdict(colours: Colours) -> Figure:
    """How a verdict is reached."""
    figure = Figure(figsize=(7.6, 3.3), layout="constrained")
    axes = figure.subplots()
    canvas = Canvas.clear(axes, colours, width=12, height=5.4)
    canvas.box((0.1, 3.5, 2.7, 1.5), "the file, read\nrecord, symbols,\nlibraries, GPU code")
    canvas.box((0.1, 0.4, 2.7, 1.5), "the machine, probed\ntorch, Python, glibc,\ndriver, GPUs")
    frame = {"fill": False, "edgecolor": colours["line"], "linewidth": 0.8}
    axes.add_patch(Rectangle((3.7, 0.15), 4.3, 5.0, **frame))
    axes.text(
        5.85,
        4.75,
        "judge(binary, runtime)",
        ha="center",
        va="center",
        fontsize=9.5,
        family="monospace",
        color=colours["text"],
    )
    for number, question in enumerate(QUESTIONS):
        canvas.box((3.9, 3.95 - 0.6 * number, 3.9, 0.5), question, size=8.5)
    for number, (answer, fill) in enumerate(ANSWERS.items()):
        canvas.box((8.9, 3.75 - 1.65 * number, 3.0, 1.2), answer, fill=fill, size=8.5)
        canvas.arrow((8.05, 2.65), (8.85, 4.35 - 1.65 * number))
    canvas.arrow((2.85, 4.25), (3.65, 3.0))
    canvas.arrow((2.85, 1.15), (3.65, 2.4))
    return figure


def draw_objects(colours: Colours) -> Figure:
    """What one wheel holds, and what of it each torch takes."""
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    axes = figure.subplots()
    canvas = Canvas.clear(axes, colours, width=12, height=5.2)
    canvas.label((1.7, 4.9), "kernels, without torch")
    canvas.label((6.0, 4.9), "glue, without CUDA")
    canvas.label((10.3, 4.9), "the torch that is installed")
    for row, name in enumerate(("one for the CPU", "one for each\nCUDA major")):
        canvas.box((0.4, 2.95 - 2.1 * row, 2.6, 1.4), name, fill="good")
    glues = {
        "one for each torch\nbefore 2.10 (ATen)": "torch before 2.10\nany Python",
        "one for all later ones\n(stable ABI)": "torch 2.10 and later\nany Python",
    }
    for row, (glue, torch) in enumerate(glues.items()):
        height = 2.95 - 2.1 * row
        canvas.box((4.6, height, 2.8, 1.4), glue, fill="fair")
        canvas.box((9.0, height, 2.6, 1.4), torch)
        canvas.arrow((7.45, height + 0.7), (8.95, height + 0.7))
    canvas.label((3.8, 2.6), "joined\nat run\ntime", size=8)
    return figure


def draw_choice(colours: Colours) -> Figure:
    """How the binary that is loaded is chosen: what is installed, then what is loaded of it."""
    figure = Figure(figsize=(7.6, 3.5), layout="constrained")
    canvas = Canvas.clear(figure.subplots(), colours, width=12, height=5.7)
    canvas.label((1.55, 5.4), "installing")
    canvas.label((8.0, 5.4), "importing")
    canvas.box(
        (0.1, 3.4, 2.9, 1.6), "pip: one wheel for\nthe platform, with all\nglue and all kernels"
    )
    canvas.box(
        (0.1, 0.7, 2.9, 1.6),
        "conda: the solver takes\none variant, by pytorch's\nversion, C++ ABI, CUDA",
    )
    questions = {
        "which torch?": ("2.10 or later: the stable glue", "older: glue of this minor and C++ ABI"),
        "which CUDA has it?": ("any: kernels of its major", "none: kernels of the CPU"),
    }
    for row, (question, answers) in enumerate(questions.items()):
        y = 3.4 - 1.75 * row
        canvas.box((3.8, y, 1.9, 1.5), question.replace(" ", "\n", 1), size=8.5)
        for line, answer in enumerate(answers):
            place = (6.3, y + 0.8 - 0.8 * line, 3.5, 0.7)
            canvas.box(place, answer, size=7.5)
            canvas.arrow((5.72, y + 0.75), (6.28, y + 1.15 - 0.8 * line))
    canvas.box(
        (3.8, 0.15, 6.0, 1.1),
        "each file is checked before it is opened;\nif it is not accepted, the next best is tried",
        size=8,
    )
    canvas.box((10.4, 3.1, 1.5, 1.8), "loaded:\nglue and\nkernels", fill="good", size=8.5)
    canvas.box((10.4, 0.4, 1.5, 1.8), "none fits:\nthe cause,\nthe command", fill="bad", size=8.5)
    canvas.arrow((3.02, 4.2), (3.78, 4.15))
    canvas.arrow((3.02, 1.3), (3.78, 0.75))
    canvas.arrow((8.05, 1.62), (8.05, 1.27))
    canvas.arrow((9.82, 0.9), (10.38, 3.4))
    canvas.arrow((9.82, 0.7), (10.38, 1.1))
    return figure


def draw_kernels(colours: Colours) -> Figure:
    """Where the recurrent weights stay while the persistent kernels run."""
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    families = {
        "registers\nS up to 128": _draw_registers,
        "cluster\nS up to 512": _draw_cluster,
        "grid\nS up to 24 for each multiprocessor": _draw_grid,
    }
    for axes, (title, draw) in zip(figure.subplots(1, 3), families.items(), strict=True):
        canvas = Canvas.clear(axes, colours, width=6, height=6.4)
        axes.set_title(title, fontsize=9, color=colours["text"])
        draw(canvas)
    return figure


def _draw_registers(canvas: Canvas) -> None:
    for block in range(3):
        y = 4.3 - 1.9 * block
        canvas.box((0.2, y, 3.9, 1.5), "one multiprocessor\nall of W", fill="good", size=8)
        canvas.box((4.4, y, 1.4, 1.5), f"rows\n{4 * block}-{4 * block + 3}", size=8)


def _draw_cluster(canvas: Canvas) -> None:
    for row in range(2):
        y = 3.2 - 3.0 * row
        frame = {"fill": False, "edgecolor": canvas.colours["line"]}
        canvas.axes.add_patch(Rectangle((0.1, y), 4.1, 2.7, **frame))
        for part in range(4):
            place = (0.25 + 0.97 * part, y + 0.85, 0.9, 1.65)
            canvas.box(place, f"W\n{part + 1}/4", fill="good", size=8)
        canvas.label((2.15, y + 0.4), "h through shared memory", size=7.5)
        canvas.box((4.4, y + 0.6, 1.5, 1.6), f"row\n{row}", size=8)


def _draw_grid(canvas: Canvas) -> None:
    for block in range(12):
        row, column = divmod(block, 4)
        place = (0.15 + 1.45 * column, 4.7 - 1.15 * row, 1.3, 1.0)
        canvas.box(place, f"W {block + 1}", fill="good", size=8)
    canvas.box((0.15, 0.9, 5.65, 1.1), "h through the L2 cache", size=8)
    canvas.label((3, 0.4), "what does not fit is read again in each step", size=7.5)
