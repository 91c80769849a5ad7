"""What the numbers say, in words."""

from __future__ import annotations

from softmax_bench.report import LEVEL, best_peer, by_case, geometric_mean, ratio, standing
from softmax_bench.roster import CHOOSER, COPY, label_of
from softmax_site.benchmarks.data import runs_used, time_text


def measured_line(data: dict, rows: list[dict]) -> str:
    """One sentence: on what, when and how many rows."""
    env = data["environments"][runs_used(data, rows)[-1]]
    times = sorted(row["utc"] for row in rows)
    states: dict[str, int] = {}
    for row in rows:
        states[row["status"]] = states.get(row["status"], 0) + 1
    count = ", ".join(
        f"{number} {state}" for state, number in sorted(states.items(), key=lambda item: -item[1])
    )
    return (
        f"Measured on one {env['gpu']} with torch {env['torch']} and triton {env['triton']}, "
        f"{time_text(times[0])} to {time_text(times[-1])} UTC, commit `{env['commit'][:12]}`; "
        f"{len(rows)} rows: {count}."
    )


def summary(rows: list[dict]) -> str:
    """What the numbers say, in words."""
    stand = {"ahead": 0, "level": 0, "behind": 0}
    losses, peers, torches, shares = [], [], [], []
    for case, group in by_case(rows).items():
        peer = best_peer(group)
        if CHOOSER not in group or peer is None:
            continue
        factor = ratio(group, peer)
        stand[standing(factor)] += 1
        if standing(factor) == "behind":
            losses.append((case, factor, peer))
        peers += [factor] if factor else []
        torches += [ratio(group, "torch")] if ratio(group, "torch") else []
        shares += [(ratio(group, COPY), case)] if ratio(group, COPY) else []
    if not peers:
        return "No case has both an answer of ours and one of another library."
    text = (
        f"Against the fastest other library of each case, `triton_softmax` is ahead in "
        f"{stand['ahead']} of {sum(stand.values())} cases, level (within {LEVEL:.0%} either "
        "way) in "
        f"{stand['level']}, and behind in {stand['behind']}. The geometric mean of its speed "
        f"is {geometric_mean(peers):.2f} × the best other library"
    )
    if torches:
        text += f" and {geometric_mean(torches):.2f} × torch"
    text += "."
    if shares:
        worst, case = min(shares)
        ordered = sorted(share for share, _ in shares)
        text += (
            f" It reaches {ordered[len(ordered) // 2]:.2f} of the copy's speed in the median "
            f"case and {worst:.2f} in "
            f"the worst, `{case}`."
        )
    if losses:
        listed = "; ".join(
            f"`{case}` ({f'{factor:.2f} ×' if factor else 'no answer against'} {label_of(peer)})"
            for case, factor, peer in losses
        )
        text += f" Losses: {listed}."
    return text
