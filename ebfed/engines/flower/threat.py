"""Who can learn what of the rows of a node, with which key, by the rules in force.

Each sentence has the test that tries it, or says that it is not proved.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ebfed.engines.flower.rules import Rules

__all__ = ["NOT_PROVED", "Sentence", "in_words", "lines_of_threats", "sentences", "units"]

NOT_PROVED = "not proved"
PLANS = "tests/adversary/test_plans.py"
GATE, SUMS = "tests/engines/test_flower_gate.py", "tests/engines/test_flower_sums.py"
COLLUSION = "tests/adversary/test_collusion.py"
MESSAGES = "tests/engines/test_flower_messages.py"
PLANNED = "tests/engines/test_flower_node_planned.py"
NODE, JOURNAL = "tests/engines/test_flower_node.py", "tests/engines/test_journal.py"
SUPERLINK = "tests/engines/test_flower_superlink.py"
MATCHING = "tests/engines/test_matching.py"
LOOPBACK = "tests/engines/test_loopback.py"
RULES, LIMITS = "tests/engines/test_flower_rules.py", "tests/engines/test_flower_limits.py"


class Sentence(NamedTuple):
    """A sentence about who can learn what.

    Attributes
    ----------
    who : str
        With which key.
    text : str
    test : str
        Test that fails if it is false, ``path::name``, or `NOT_PROVED`.
    """

    who: str
    text: str
    test: str


# A text, and its test.
Said: TypeAlias = tuple[str, str]


def units(rules: Rules) -> tuple[str, str]:
    """Return whom a budget is of, and what groups are counted in."""
    person = None if rules.rows is None else rules.rows.person
    if person in (None, "row"):
        return ("row" if person else "group"), "rows"
    return person, f"{person}s" if person.isalpha() else f"different {person}"


def in_words(rules: Rules, spent: float | None = 0.0, exact: bool = False) -> str:
    """Say what runs may take, and what the most charged person has spent.

    Parameters
    ----------
    rules : Rules
    spent : float or None
        Epsilon of the person who has spent most; None: nothing is said of it.
    exact : bool
        Whether figures without a guarantee were sent.

    Examples
    --------
    >>> in_words(Rules())
    'no noise: exact sums of at least 5 rows each'
    >>> in_words(Rules(epsilon=3.0), spent=1.2)
    'epsilon 3 per group over all runs, 1.2 spent'
    """
    unit, counted = units(rules)
    if not rules.is_finite:
        least = rules.min_group_size
        many = "any rows" if least == 1 else f"at least {least} {counted} each"
        return f"no noise: exact sums of {many}" + (f"; epsilon {spent:.4g} spent" if spent else "")
    text = f"epsilon {rules.epsilon:g} per {unit} over all runs"
    if math.isinf(rules.epsilon):
        text = f"epsilon {rules.run_epsilon:g} per {unit} in each run, without a limit over runs"
    agreed = (
        f"; exact sums of at least {rules.min_group_size} {counted} who agreed" if exact else ""
    )
    return text + ("" if spent is None else f", {spent:.4g} spent") + agreed


def sentences(rules: Rules) -> list[Sentence]:
    """Return what each can learn, by the rules of a node."""
    found = {
        "Anybody on the network, without a key": _of_anybody(),
        "Who has the token of the server": _of_the_token(rules),
        "The operator of the server": _of_the_server(rules),
        "Another node, with its own key": _of_another_node(),
        "Another node on the side of the server": _of_colluding_nodes(rules),
        "A reader of the server's results": _of_readers(rules),
        "The administrator of this node's machine": _of_the_owner(),
        "Another account on this node's machine": _of_accounts(),
    }
    return [Sentence(who, *each) for who, said in found.items() for each in said]


def _of_anybody() -> Iterator[Said]:
    yield (
        "cannot start a run, register a node, or answer as one.",
        f"{LOOPBACK}::test_without_a_key",
    )
    yield (
        "sees that a server is there, who connects, when, and how many bytes: connections are "
        "encrypted, and their sizes are not hidden.",
        NOT_PROVED,
    )


def _of_the_token(rules: Rules) -> Iterator[Said]:
    methods = "any method" if rules.methods is None else f"one of {', '.join(rules.methods)}"
    columns = None if rules.rows is None else rules.rows.columns
    named = "all columns of the table" if columns is None else f"the columns {', '.join(columns)}"
    yield "runs programs at the server, and so learns all that the server learns.", NOT_PROVED
    yield (
        f"chooses {methods}, and among {named}; nothing else is read.",
        f"{PLANNED}::test_rows_that_are_refused",
    )
    yield (
        "executes nothing at this node: a plan is data.",
        f"{PLANNED}::test_methods_that_are_refused",
    )
    yield (
        f"takes {rules.max_seconds:g} seconds of this node for an answer, and the rest of a "
        "compiled step.",
        f"{LIMITS}::test_an_answer_ends_in_time",
    )
    if rules.is_finite:
        yield (
            "cannot give a column another role, nor say who agreed.",
            f"{GATE}::test_a_plan_does_not_say_who_agreed",
        )


def _of_the_server(rules: Rules) -> Iterator[Said]:
    if not rules.is_finite:
        yield from _of_exact_figures(rules)
    elif rules.against == "server":
        yield from _of_a_budget(rules)
    else:
        yield (
            'is trusted, by against = "readers": it may read exact changes of a single group, to '
            "which it is to add the noise itself.",
            NOT_PROVED,
        )
    yield (
        "reads numbers of rows of groups, exposures, covariates, classes and choices of consent "
        "as they are, outside of any budget, as the ledger says.",
        f"{GATE}::test_facts_are_in_the_ledger_before_they_are_sent",
    )
    if rules.match_key is None:
        yield "does not learn labels of groups.", f"{PLANS}::test_random_plans_leak_nothing"
    else:
        yield (
            "reads digests of labels; who has the match key too can tell which these are.",
            f"{MATCHING}::test_digests_are_hmacs_of_type_and_value",
        )
    yield from _of_sums(rules)


def _of_exact_figures(rules: Rules) -> Iterator[Said]:
    least, (_, counted) = rules.min_group_size, units(rules)
    if least > 1:
        yield (
            f"reads exact figures of each group of at least {least} {counted}, without noise; of "
            "smaller groups none.",
            f"{GATE}::test_exact_figures_are_of_enough_persons",
        )
    else:
        yield "reads exact figures of single rows.", NOT_PROVED
    yield (
        "may take sums of products with a column that few rows have, and subtract figures of "
        "several columns, groupings, rounds and runs, so that those of few rows follow: nothing "
        "limits this without a budget.",
        NOT_PROVED,
    )


def _of_a_budget(rules: Rules) -> Iterator[Said]:
    unit, counted = units(rules)
    learns = f"learns of each {unit} by messages with noise at most epsilon"
    if math.isfinite(rules.epsilon):
        yield (
            f"{learns} {rules.epsilon:g} (delta {rules.delta:g}) over all runs, whatever rows are "
            "grouped by.",
            f"{GATE}::test_a_budget_is_of_persons_whatever_labels_are",
        )
    if math.isfinite(rules.run_epsilon):
        yield f"{learns} {rules.run_epsilon:g} in one run.", f"{RULES}::test_other_rules"
    if math.isinf(rules.epsilon):
        yield "may hold any number of runs, whose epsilons add up.", NOT_PROVED
    opened = None if rules.rows is None else rules.rows.consent
    if opened is not None:
        values = ", ".join(map(str, opened["open"]))
        yield (
            f"reads exact figures of groups all of whose rows have {values} in "
            f"{opened['column']}, if they are at least {rules.min_group_size} {counted}.",
            f"{GATE}::test_those_who_agreed_send_exact_figures",
        )
    else:
        yield (
            "reads no exact figures: nobody agreed to any.",
            f"{RULES}::test_exact_figures_need_consent_within_a_budget",
        )
    yield (
        "learns whether a method takes the rows, such as whether all values of a column are 0 or "
        "1, outside of any budget.",
        NOT_PROVED,
    )
    yield (
        "cannot have noise left to itself: such methods are refused.",
        f"{GATE}::test_a_plan_does_not_say_that_the_server_is_trusted",
    )


def _of_sums(rules: Rules) -> Iterator[Said]:
    sees = 'sees of methods with trust="nobody" the sum over nodes,'
    if rules.partners is None:
        yield (
            "reads the messages of this node one by one: it is in no secure sum.",
            f"{SUMS}::test_sums_that_an_owner_refuses",
        )
    elif isinstance(rules.partners, Mapping):
        yield (
            f"{sees} whatever it says to nodes.",
            f"{COLLUSION}::test_only_sums_follow_whatever_the_server_says",
        )
    else:
        yield (
            f"{sees} if it follows the protocol.",
            f"{COLLUSION}::test_only_sums_follow_where_no_node_helps",
        )
        yield (
            "sees each vector if it makes up keys of partners: owners list no keys.",
            f"{COLLUSION}::test_signatures_that_nobody_looks_at_are_a_hole",
        )


def _of_another_node() -> Iterator[Said]:
    yield (
        "cannot answer as this node.",
        f"{MESSAGES}::test_a_node_that_gives_anothers_name_is_left_out",
    )
    yield (
        "learns the population that was fitted, which is also of its own rows: with two nodes and "
        "exact figures, those of the other may follow.",
        NOT_PROVED,
    )


def _of_colluding_nodes(rules: Rules) -> Iterator[Said]:
    if rules.partners is None:
        yield "learns what the server learns, and no more.", NOT_PROVED
    elif not isinstance(rules.partners, Mapping):
        yield (
            "may make a secure sum show the vector of this node, as owners list no keys.",
            f"{COLLUSION}::test_signatures_that_nobody_looks_at_are_a_hole",
        )
    elif rules.colluding:
        yield (
            f"learns of a secure sum no vector of this node, if at most {rules.colluding} of the "
            "partners are on that side.",
            f"{COLLUSION}::test_only_sums_follow_whatever_the_server_says",
        )
    else:
        yield (
            "may learn with it the vector of this node in a secure sum: colluding = 0 says that "
            "no partner is on that side.",
            f"{COLLUSION}::test_below_the_least_threshold_a_vector_follows",
        )


def _of_readers(rules: Rules) -> Iterator[Said]:
    unit, _ = units(rules)
    if math.isfinite(rules.epsilon):
        yield (
            f"learns of each {unit} at most epsilon {rules.epsilon:g} over all runs, but for "
            "numbers of rows, and groups that agreed to exact figures.",
            f"{RULES}::test_runs_are_composed_as_mechanisms",
        )
    else:
        yield (
            f"reads a population fitted to exact figures, and what it says of a {unit} is not "
            "limited over runs.",
            NOT_PROVED,
        )
    yield (
        "reads no estimate of a group: they are written at the nodes.",
        f"{NODE}::test_result_is_written_at_home",
    )


def _of_the_owner() -> Iterator[Said]:
    yield "reads the rows, the key of the node, and all that it sent.", NOT_PROVED
    yield (
        "cannot take a line out of the ledger without it being noticed, but the last lines, or "
        "all of it.",
        f"{JOURNAL}::test_a_line_that_is_missing_is_noticed",
    )


def _of_accounts() -> Iterator[Said]:
    yield "cannot read the key of the node.", f"{SUPERLINK}::test_a_key_is_made_once_for_its_owner"


def lines_of_threats(rules: Rules) -> list[str]:
    """Write who can learn what, with the test of each sentence.

    Examples
    --------
    >>> lines_of_threats(Rules())[0]
    'Anybody on the network, without a key'
    """
    lines, last = [], ""
    for each in sentences(rules):
        lines += [each.who] if each.who != last else []
        lines += textwrap.wrap(each.text, 90, initial_indent="  - ", subsequent_indent="    ")
        lines.append(f"    [{each.test}]")
        last = each.who
    return lines
