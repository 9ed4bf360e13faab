"""Commands as a user gives them."""

from typer.testing import CliRunner


def invoke(*arguments):
    """Run `gpsuq ARGUMENTS`, or `python -m paper ARGUMENTS` where the first is "paper"."""
    words = [str(argument) for argument in arguments]
    if words[0] == "paper":
        from paper.__main__ import app
    else:
        from gpsuq.cli import app
    return CliRunner().invoke(app, words[words[0] == "paper" :])


def interrupt_networks(monkeypatch, step):
    """Let Ctrl-C come at a step of the networks that are trained; return a list with an entry for each step."""
    steps = []

    def rate(*_):
        steps.append(None)
        if len(steps) == step:
            raise KeyboardInterrupt
        return 0.01

    monkeypatch.setattr("gpsuq.engine.settings.Recipe.rate", rate)
    return steps
