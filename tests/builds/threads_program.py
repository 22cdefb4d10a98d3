"""Twelve threads at once over the op, the layer and the loader; prints what failed."""

import threading
import traceback

import torch

import lltm_conda
from lltm_conda import loader
from lltm_conda._project import PROJECT
from lltm_conda.engine.judge import probe_runtime
from lltm_conda.engine.judge.cache import find_binaries

ROUNDS = 40
torch.set_num_threads(1)
torch.manual_seed(0)
layer = lltm_conda.LLTMLayer(6, 5, num_layers=2, bidirectional=True).double()
sequence = torch.randn(7, 3, 6, dtype=torch.float64)
operands = [
    torch.randn(size, dtype=torch.float64) for size in ((4, 3), (15, 8), (15,), (4, 5), (4, 5))
]


def gradients(function, leaves):
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    results = function(*leaves)
    return [*results, *torch.autograd.grad(sum(result.sin().sum() for result in results), leaves)]


def cell():
    return gradients(lltm_conda.lltm, operands)


def whole_sequence():
    return gradients(lambda input: layer(input)[:1], [sequence])


EXPECTED = {cell: cell(), whole_sequence: whole_sequence()}


def same_numbers(function):
    for _ in range(ROUNDS):
        result = function()
        assert all(map(torch.equal, result, EXPECTED[function])), function.__name__


def judges_alike():
    runtime = probe_runtime(gpu=False, project=PROJECT)
    for _ in range(ROUNDS):
        assert loader.load() is loader.loaded()
        paths, distrusted = find_binaries(PROJECT, runtime.torch)
        assert distrusted is None
        assert loader.LOADER.choose(paths, runtime, None).variant == loader.loaded().variant


failures = []
start = threading.Barrier(12)


def run(task):
    try:
        start.wait()
        task()
    except BaseException:
        failures.append(traceback.format_exc())


tasks = [
    *[lambda: same_numbers(cell)] * 4,
    *[lambda: same_numbers(whole_sequence)] * 4,
    *[judges_alike] * 4,
]
threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*failures, sep="\n")
print("failures", len(failures))
