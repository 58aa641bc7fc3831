"""Proves: a figure drawn half before and half after comes out exactly as one drawn in one go.
How: set-up draws a whole figure, keeps the hash of its PNG, and starts another that it leaves half drawn; a
check finishes that one, compares hashes, and starts the next."""

import io

import program

np = program.require("numpy")
matplotlib = program.require("matplotlib")
matplotlib.use("Agg")
plt = program.require("matplotlib.pyplot")
steps = 0


def first_half():
    figure, axes = plt.subplots(2, 1, figsize=(4, 4))
    x = np.linspace(0, 10, 200)
    axes[0].plot(x, np.sin(x + steps), label=f"sine {steps}")
    axes[0].legend()
    figure.canvas.draw()  # fills font and renderer caches
    return figure, axes


def second_half(figure, axes):
    rng = np.random.default_rng(steps)
    axes[1].hist(rng.normal(size=500), bins=20)
    axes[1].set_title(f"step {steps}: $\\alpha = {steps}$")
    axes[0].fill_between([0, 5], [0, 1], alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    plt.close(figure)
    return program.sha(buffer.getvalue())


def prepare():
    global expected, half
    expected = second_half(*first_half())
    half = first_half()


def check():
    global half
    program.expect("hash of the PNG", second_half(*half), expected)
    half = first_half()


def step():
    global steps
    steps += 1
    plt.close(half[0])
    prepare()


program.run(prepare, check, step, lambda: expected)
