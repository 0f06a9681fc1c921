# SPDX-License-Identifier: Apache-2.0
"""What the hub's store has after the kills, beside the CPU time that the burner says it used."""
import bisect
from dataclasses import dataclass, field

ON_CPU = 0
# The stored time of a window over the CPU time that the burner used in it, at least and at most:
# samples are 10 ms apart, and some are lost when the machine itself is held up.
LEAST, MOST, SLACK_S = 0.75, 1.2, 0.15
# Seconds by which a reported loss may be wrong: the agent looks once a second, and later on a busy
# machine.
TOLD_SLACK_S = 2
# Seconds that an agent has not sent when it dies, besides its open window: the drain of each
# second, and twice the 3 s in which names may come. A late drain, which puts a window into the one
# before, adds to that.
UNSENT_S = 7


@dataclass
class Stored:
    windows: dict = field(default_factory=dict)  # last second -> CPU seconds of the burner
    profiles: dict = field(default_factory=dict)  # last second -> how many profiles of it
    # (last second of the window that reports it, seconds of agent_down)
    gaps: list = field(default_factory=list)
    lost: list = field(default_factory=list)  # (reason, samples): anything else


def read(place):
    s = Stored()
    with place.store() as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok", "the store is damaged"
        burner = ("SELECT se.id FROM series se JOIN strings app ON app.id=se.app WHERE "
                  "app.s='burner' AND se.pid="
                  f"{place.processes[0].pid}")
        s.windows = {t: v / 1e6 for t, v in db.execute(
            f"SELECT time, SUM(value) FROM profiles WHERE event=? AND series IN ({burner}) AND n>0 "
            f"GROUP BY time", (ON_CPU,))}
        s.profiles = dict(db.execute(
            f"SELECT time, COUNT(*) FROM profiles WHERE event=? AND series IN ({burner}) AND n>0 "
            f"GROUP BY time", (ON_CPU,)))
        for at, reason, n, ns in db.execute("SELECT l.time, r.s, l.n, l.time_ns FROM losses l JOIN "
                                           "strings r ON r.id=l.reason WHERE l.event=?", (ON_CPU,)):
            if reason == "agent_down":
                s.gaps.append((at, ns / 1e9))
            else:
                s.lost.append((reason, n))
    return s


class Burnt:
    """CPU seconds of the burner between two moments."""

    def __init__(self, path):
        with open(path) as f:
            rows = [tuple(map(float, line.split())) for line in f if line.count(" ") == 1
                    and line.endswith("\n")]
        self.wall, self.cpu = zip(*rows)

    def at(self, t):
        i = bisect.bisect_left(self.wall, t)
        if i in (0, len(self.wall)):
            return self.cpu[min(i, len(self.cpu) - 1)]
        share = (t - self.wall[i - 1]) / (self.wall[i] - self.wall[i - 1])
        return self.cpu[i - 1] + share * (self.cpu[i] - self.cpu[i - 1])

    def between(self, a, b):
        return self.at(b) - self.at(a)


def split(stored, window_s, until_s):
    """[(told, [last second of each window])]: one run for each agent that stored something; told is
    how many seconds before it were reported as loss."""
    times = sorted(t for t in stored.windows if t <= until_s)
    found = [(0.0, [times[0]])]
    for before, t in zip(times, times[1:]):
        told = sum(s for at, s in stored.gaps if before < at <= t)
        if told:
            # from the end of the last window until a process is profiled again, which is somewhere
            # in the next one
            profiled = before + 1 + told
            assert t + 1 - window_s - TOLD_SLACK_S <= profiled <= t + 1 + TOLD_SLACK_S, \
                (f"nothing is stored of seconds {before + 1} to {t - window_s}, "
                 f"and {told:.1f} s are reported as loss")
            found.append((told, []))
        found[-1][1].append(t)
    return found


def check_run(times, window_s, stored, burnt):
    """Every window between the first and the last one is there. A drain that came late put its
    window into the one before."""
    merged = 0
    have = set(times)
    for t in range(times[0], times[-1] + 1, window_s):
        if t in have:
            continue
        around = sum(stored.windows.get(x, 0) for x in (t - window_s, t, t + window_s))
        was = burnt.between(t + 1 - 2 * window_s, t + 1 + window_s)
        assert around > 0.85 * was, \
            f"the window that ends with second {t} is lost: around it {around:.2f} of {was:.2f} s"
        merged += 1
    return merged


def check_once(times, window_s, stored, burnt):
    """All windows but the first and the last of a run, which are not whole, have no more than the
    burner used, and no less."""
    inner = times[1:-1]
    for t in times:
        assert stored.profiles[t] == 1, \
            f"{stored.profiles[t]} profiles of the window that ends with second {t}"
        # a late drain puts samples of the next window into this one
        most = burnt.between(t + 1 - window_s, t + 1 + window_s)
        assert stored.windows[t] <= MOST * most + SLACK_S, \
            f"second {t}: {stored.windows[t]:.2f} s stored of {most:.2f} s at most"
    if len(inner) < 3:
        return 0, 0
    a, b = inner[0] + 1 - window_s, inner[-1] + 1
    have, was = sum(stored.windows[t] for t in inner), burnt.between(a, b)
    what = f"seconds {a} to {b}: {have:.2f} s stored of {was:.2f} s"
    assert have <= MOST * was + SLACK_S, f"{what}: something is there twice"
    assert have >= LEAST * was - SLACK_S, f"{what}: something is lost"
    return have, was


def cost(stored, lives):
    """Seconds between the end of an agent's last stored window and its death; the most of all
    agents."""
    lasts = [(max((t + 1 for t in stored.windows if begin < t < end), default=None), end)
             for begin, end in lives]
    return max((end - last for last, end in lasts if last), default=0)


def check(place, window_s, until_s, lives=()):
    stored, burnt = read(place), Burnt(f"{place.dir}/burner.log")
    n = merged = 0
    have = was = told = 0.0
    runs = split(stored, window_s, until_s)
    for gap, times in runs:
        merged += check_run(times, window_s, stored, burnt)
        h, w = check_once(times, window_s, stored, burnt)
        n, have, was, told = n + len(times), have + h, was + w, told + gap
    elapsed = times[-1] + 1 - (runs[0][1][0] + 1 - window_s)
    assert n > 2, "next to nothing is stored"
    assert len(runs) > 1 or not lives, "an agent's death is not told"
    dear = cost(stored, lives)
    assert dear <= window_s + UNSENT_S, f"an agent's death costs {dear:.1f} s of what was before it"
    return (f"{n} windows of {window_s} s are stored of {elapsed} s; {len(runs) - 1} times no "
            f"agent, {told:.1f} s of it told as loss (a death: {dear:.1f} s before it at most); "
            f"{merged} windows are in the one before; CPU time in whole windows {have:.1f} of "
            f"{was:.1f} s; other losses: {stored.lost}")
