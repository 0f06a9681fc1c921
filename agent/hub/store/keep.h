/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/: how long windows are kept. A window's namespace says it, if that one has a
 * retention of its own; else its event does; else the store's retention. What could not be verified
 * may name any namespace, so its event says it.
 */
#pragma once

#include "hub/store/store.h"

/* Windows that are kept for less time than others. */
struct keep_rule {
	char *ns;	  /* of any cluster; NULL: all but those of struct keeps */
	enum event event; /* ns NULL: only this one */
	uint64_t retention_ns;
	int64_t cut_s; /* the sink's: those that ended then or before were deleted; 0: none were */
};
struct keeps {
	uint64_t longest_ns; /* after this time, any window is deleted; 0: never */
	struct keep_rule *rules;
	size_t n;
	char **namespaces; /* those that have a retention of their own */
	size_t n_namespaces;
};
/* -EINVAL: reterr names the key. */
int store_keeps_check(const struct store_config *c, struct field_error *reterr);
void store_keeps_begin(struct keeps *ret, const struct store_config *c); /* which was checked */
void store_keeps_done(struct keeps *k);

/*
 * Until when what is kept so long is deleted; 0: nothing is. It counts from now, but at most from
 * a day after the newest window, because the hub's clock may be ahead.
 */
int64_t store_keep_until(uint64_t retention_ns, int64_t now_s, int64_t newest_s);
/* For how many seconds expired windows may stay, so that many are deleted at once. */
int64_t store_keep_slack(uint64_t retention_ns, int64_t most_s);
