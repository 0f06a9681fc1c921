/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of fold/ share: the open window, its profiles, and the hash tables that find
 * profiles and samples again. Pipeline worker only.
 */
#pragma once

#include "lib/base/shares.h"
#include "node/fold/fold.h"

#include <uthash.h>

/*
 * Strings in keys are interned in the batch: equal strings have equal pointers. The caller zeroes a
 * key before it fills it in, because uthash compares the padding, too.
 */
struct profile_key {
	/*
	 * NULL: no container. Also NULL for a snapshot, which belongs to the process, whatever its
	 * owner is.
	 */
	const struct owner *owner;
	const char *comm; /* NULL for losses and for snapshots */
	struct process_id id;
	enum event event;
};
struct sample_key {
	const char *process_comm, *thread_comm;
	uint32_t stack;
	int32_t cpu;
	uint32_t main_thread;
	uint32_t link;
	uint32_t wait, pad;
	const struct profile_labels *labels;
};
struct sample_entry {
	UT_hash_handle hh;
	struct sample_key key;
	size_t index; /* index in profile->samples */
};
struct profile_entry {
	UT_hash_handle hh;
	struct profile_key key;
	struct profile *profile;
	/* a reference, so that no other owner gets the address that is in the key */
	struct owner *owner;
	struct sample_entry *samples;
	uint64_t snapshot_ns; /* last_ns of the snapshot in the profile */
};

/* How exact the values of one event of an owner are. */
struct estimate_key {
	const struct owner *owner;
	uint64_t event;
};
struct estimate_entry {
	UT_hash_handle hh;
	struct estimate_key key;
	struct owner *owner;
	uint32_t ppm;
	double variance, total; /* total: sum of the values; computed when the window ends */
};

/* The number of bytes by which the samples of an owner have made the window grow. */
struct share {
	UT_hash_handle hh;
	struct owner *owner; /* a reference */
	size_t bytes;
};

struct fold {
	char *node_uid, *boot_id, *node_name, *cluster_name;
	uint64_t window_ns;
	bool per_cpu;
	/* wall time minus CLOCK_BOOTTIME, for start times of processes; the same in every window */
	uint64_t first_offset_ns;
	char run[24];		  /* identifies this run of the agent; a part of profile ids */
	uint64_t n_profiles;	  /* number of profiles in this run; a part of profile ids */

	struct batch *batch;
	uint64_t start_ns, end_ns; /* wall time */
	uint64_t offset_ns;	   /* wall = boot + offset, modulo 2^64 */
	uint64_t asleep_ns;	   /* time asleep since the last fold_flush() */
	size_t sample_bytes;
	struct profile_entry *profiles;
	struct estimate_entry *estimates;
	/* charged: the share of the owner between fold_begin() and fold_end(); else NULL */
	struct share *shares, *charged;
	size_t bytes_before;		/* the window's bytes at fold_begin() */
	struct shares linked;		/* samples with a link, of each namespace */
	struct shares links;		/* links, of the namespace whose sample first had them */
	struct shares unlinked; /* for fold_unlinked() */
};

/* ---- profiles.c ---- */
#define FOLD_ENTRY_BYTES (sizeof(struct profile_sample) + sizeof(struct sample_entry) + 64)
/*
 * Returns the profile of key. If the window has none, this function makes the profile, even if the
 * window is full, because a loss is counted in a profile.
 */
struct profile_entry *fold_find_profile(struct fold *f, const struct profile_key *key,
					struct owner *owner, uint32_t container_pid);
bool fold_has_profile(const struct fold *f, const struct profile_key *key);
/* Whether the profile has a sample to which fold_put_sample() would add this one. */
bool fold_has_sample(const struct profile_entry *e, const struct profile_sample *s);
/* Adds a sample to a profile. false: the window is full, and the sample was not added. */
bool fold_put_sample(struct fold *f, struct profile_entry *e, const struct profile_sample *s);
bool fold_is_full(const struct fold *f, size_t more_bytes);
/*
 * Replaces the older snapshot in e by an empty one of this process and comm. false: e has a newer
 * snapshot than that of time_ns, and is not changed.
 */
bool fold_begin_snapshot(struct fold *f, struct profile_entry *e, const struct fold_process *who,
			 const char *comm, uint64_t time_ns);
void fold_forget_profiles(struct fold *f);

/* ---- shares.c ---- */
/* Whether the owner of the sample that is being added has bytes left for samples with labels. */
bool fold_may_label(const struct fold *f);
/*
 * Gives s, which is complete but for its link and is to be put into e, this link. false: it has
 * none, because the namespace has used up its share. A sample that only adds to one of the window
 * always gets it.
 */
bool fold_link(struct fold *f, const struct profile_entry *e, const struct profile_link *l,
	       struct profile_sample *s);
/* One more sample, and one less, of this owner in the window has a link. */
void fold_add_linked(struct fold *f, const struct owner *owner);
void fold_remove_linked(struct fold *f, const struct owner *owner);
void fold_forget_shares(struct fold *f);

/* ---- estimates.c ---- */
/* Writes the notes of fold_estimate() into the window's profiles, and deletes the notes. */
void fold_apply_estimates(struct fold *f);
