# SPDX-License-Identifier: Apache-2.0
"""What schemathesis cannot know of the hub's API: the language of tag_filter, and that a wrong one
gets 500 FAIL, as in DeepFlow."""
import schemathesis
from hypothesis import strategies as st

TAGS = ["pod_ns", "pod", "thread", "app_service", "`k8s.label.app`", "pod_ns_id"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(
    lambda s: "'" + s.replace("\\", "\\\\").replace("'", "\\'") + "'")
CONDITION = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(TAGS),
              st.sampled_from(["=", "!=", "<", ">=", "LIKE", "NOT LIKE"]), TEXT),
    st.builds("{} IN ({})".format, st.sampled_from(TAGS),
              st.lists(TEXT, min_size=1, max_size=3).map(", ".join)),
    st.builds("{} IS NOT NULL".format, st.sampled_from(TAGS)),
    st.sampled_from(["cpu >= 1", "process_id = 4", "pod REGEXP '^web-\\\\d+$'", "exist(pod)"]))
FILTER = st.recursive(CONDITION, lambda f: st.one_of(
    st.builds("({} AND {})".format, f, f), st.builds("({} OR {})".format, f, f),
    st.builds("NOT ({})".format, f)), max_leaves=5)

schemathesis.openapi.format("podflame-tag-filter", st.one_of(st.just(""), FILTER))


# What a schema cannot say. "bad JSON" are a NUL in a text, and an integer of more than 64 bits;
# "wrong parameter" is a NUL, too.
REFUSED = ["time_end is before time_start", "step: more than ", "body: is not compressed with zstd",
           "bad JSON: ", "wrong parameter: ",
           "group_by: expected the name of a tag"]
# Calls of Grafana: their messages are those of another API, which e2e/grafana tests.
CALLS = ("/querier.v1.", "/settings.v1.", "/pyroscope/")


def has_real(value):
    """23.0 is an integer in JSON Schema, but neither in Go nor here."""
    if isinstance(value, dict):
        return any(has_real(v) for v in value.values())
    return isinstance(value, float)


@schemathesis.check
def refusal_is_told(_ctx, response, case):
    """A request that the schema allows is refused only for a reason that no schema can say."""
    if response.status_code != 400 or not case.meta.generation.mode.is_positive:
        return
    if has_real(case.body) or case.path.startswith(CALLS):
        return
    reason = response.json()["DESCRIPTION"]
    assert any(r in reason for r in REFUSED), f"{response.status_code}: {reason}"


@schemathesis.check
def failure_is_told(_ctx, response, case):
    """A server error is one that the API names: FAIL and a reason."""
    if response.status_code < 500:
        return
    if case.path.startswith(CALLS):
        assert response.json()["code"] == "unimplemented", response.text
        return
    answer = response.json()
    assert answer["OPT_STATUS"] == "FAIL" and answer["DESCRIPTION"].startswith("tag_filter: "), \
        f"{response.status_code}: {answer}"


@schemathesis.serializer("application/vnd.podflame.index", "application/proto")
def as_it_is(_ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()

