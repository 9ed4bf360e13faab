"""Descriptions tell functions and objects apart by what they hold, and are equal in every process."""

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from gpsuq import MMD
from gpsuq.engine.fingerprint import describe


def multiply(x, factor=1.0):
    return x * factor


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor

    def method(self, x):
        return x * self.factor


def with_default(factor):
    def times(x, by=factor):
        return x * by

    return times


def with_keyword_default(factor):
    def times(x, *, by=factor):
        return x * by

    return times


def with_global(factor):
    return eval("lambda x: x * factor", {"factor": factor})


def with_global_inside(factor):
    return eval("lambda x: [y * factor for y in x]", {"factor": factor})


def with_helper(factor):
    names = {}
    exec(f"def helper(x): return {factor} * x\ndef times(x): return helper(x)", names)
    return names["times"]


def with_method(called):
    def make(factor):
        names = {}
        method = f"def {called}(self, x): return [self.own(y) for y in x]"
        helper = f"def own(self, y): return {factor} * y"
        exec(f"class Own:\n {method}\n {helper}", names)
        return names["Own"]()

    return make


def with_constant_inside(factor):
    return eval(f"lambda x: [(lambda y: {factor} * y)(y) for y in x]")


def layer(factor):
    result = nn.Linear(1, 1)
    nn.init.constant_(result.weight, factor)
    nn.init.zeros_(result.bias)
    return result


MAKERS = {
    "closure": lambda factor: lambda x: x * factor,
    "tensor": lambda factor: partial(multiply, factor=torch.tensor(factor)),
    "array": lambda factor: partial(multiply, factor=np.array([factor, 1.0])),
    "dates": lambda factor: np.array([int(factor)], dtype="datetime64[D]"),
    "default": with_default,
    "keyword default": with_keyword_default,
    "global": with_global,
    "global inside": with_global_inside,
    "helper": with_helper,
    "constant inside": with_constant_inside,
    "partial": lambda factor: partial(multiply, factor=factor),
    "object": Times,
    "method": lambda factor: Times(factor).method,
    "method of a call": with_method("__call__"),
    "method of an epoch": with_method("for_epoch"),
    "module": layer,
    "table": lambda factor: pd.DataFrame({"a": [factor, 2.0]}),
    "kernel": lambda factor: MMD(lambda a, b: factor * (a * b).sum(-1)),
    "arguments": lambda factor: eval("lambda a, b: a / b" if factor == 1.0 else "lambda b, a: b / a"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_a_function_uses_is_seen(make):
    assert describe(make(1.0)) == describe(make(1.0))
    assert describe(make(1.0)) != describe(make(2.0))
    assert " at 0x" not in describe(make(1.0))


def test_weights_can_be_left_out():
    assert describe(layer(1.0), weights=False) == describe(layer(2.0), weights=False)
    assert describe(layer(1.0), weights=False) != describe(nn.Linear(2, 1), weights=False)


def test_globals_that_are_not_used_do_not_count():
    def attribute(factor):
        return eval("lambda x: x.scale + scale_of(x)", {"scale": factor, "scale_of": len})

    assert describe(attribute(1.0)) == describe(attribute(2.0))


def test_depth_costs_little():
    nested = "it's"
    for _ in range(50):
        nested = [nested]
    assert len(describe(nested)) < 2000


def test_circles_and_what_cannot_be_saved_are_described():
    circle: list[object] = [1.0]
    circle.append(circle)
    assert describe(circle) == "builtins.list [1.0, <0>]"

    def countdown(n):
        return n and countdown(n - 1)

    assert describe(countdown)
    assert describe(Times(threading.Lock())) == describe(Times(threading.Lock()))


def everything():
    """Describe one of each kind, and sets, whose order is another one in every process."""
    sets = [set("abcdefgh"), lambda x: x in {"a", "b", "c", "d", "e", "f", "g", "h"}]
    return describe([[make(1.0) for make in MAKERS.values()], sets])


def test_descriptions_are_equal_in_every_process():
    code = "import test_fingerprint as t; print(t.everything())"
    run = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    first, second = (run([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}) for seed in "12")
    assert first.stdout == second.stdout != ""


def test_a_single_number_may_have_any_stride():
    number = torch.arange(8.0).as_strided((1,), (4,))
    assert number.is_contiguous()
    assert describe(number) == describe(torch.zeros(1))
