/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold: adds samples up to profiles. There is one profile per process, event and window. Samples of
 * threads with the same name are added up. fold owns the open window until fold_flush() returns it.
 * It reads no files and names no frames. Pipeline worker only.
 */
#pragma once

#include "node/stack/stack.h"

struct fold_config {
	const char *node_uid, *boot_id;	/* parts of the profile id */
	const char *node_name, *cluster_name;
	uint64_t window_ns;		/* 1 s to 60 s */
	bool per_cpu;
	/*
	 * Wall time minus CLOCK_BOOTTIME. It is added to the start times of processes, which are a
	 * part of their identity. 0: fold_new() takes it from the clocks.
	 */
	uint64_t start_offset_ns;
};
struct fold;
struct shares;
/* -ERANGE: window_ns is out of range. */
int fold_new(const struct fold_config *c, struct fold **ret);
struct fold *fold_free(struct fold *f);

/* What fold needs to know of a process, besides the owner's tags. */
struct fold_process {
	struct process_id id;
	uint32_t container_pid;
	const char *comm;		/* name of the process; the profile's app_service */
	/* borrowed; NULL: a process of the host, without a container */
	struct owner *owner;
};
/*
 * The caller interns strings and frames in fold_batch() and adds samples between fold_begin() and
 * fold_end(). The bytes that this needs count for the owner (NULL: for no container; then there is
 * no limit). false: the owner already uses half of the bytes that the other owners leave in the
 * window. Then the caller must report its sample as lost, with the reason "window_full".
 */
bool fold_begin(struct fold *f, struct owner *owner);
void fold_end(struct fold *f);
/*
 * Adds a sample; its time is last_ns (CLOCK_BOOTTIME). stack is an index of fold_batch(). false:
 * the window is full; fold_add() has added the sample to the window's losses.
 * - A sample whose window has ended goes into the open window, and is counted as late.
 * - Samples with different links are not added up, until their namespace has more than its share of
 *   links. After that, a sample that would need more room loses its link, which is counted; see
 *   fold_unlinked().
 * - Samples with different labels are not added up, until their container has used half of what
 *   fold_begin() lets it use. After that, or if the window is full, a sample loses its labels,
 *   which is counted.
 * - Profiles of some events are snapshots. Their samples with equal last_ns are one snapshot. The
 *   newest snapshot of a process replaces the one in the open window. A sample with n 0 and value 0
 *   is an empty snapshot.
 */
bool fold_add(struct fold *f, const struct fold_process *p, const struct raw_sample *s,
	      const struct raw_names *names, uint32_t stack);
/*
 * Adds to `to` each namespace (its hash) that had more links than its share since the last call.
 */
void fold_unlinked(struct fold *f, struct shares *to);
/*
 * Returns how much of an off-cpu sample's value is from before boot_ns (CLOCK_BOOTTIME). It assumes
 * that the value is spread evenly over the time in which it was measured, which ends with last_ns.
 * For other events, returns the whole value.
 */
uint64_t fold_value_before(const struct raw_sample *s, const struct owner *o, uint64_t boot_ns);
/*
 * Notes the error of the values that were added for this event of the owner since the last call.
 * ppm: which part of all occurrences of the event was measured, in millionths (0: all). error: one
 * standard error of the sum, in the event's unit. Errors of one window add up; the error of a
 * snapshot replaces that of the last one. When the window ends, the errors are divided among the
 * owner's profiles, in proportion to their values.
 */
void fold_estimate(struct fold *f, struct owner *owner, enum event event, uint32_t ppm,
		   uint64_t error);
/* Adds CPU time that was counted for the whole node. time_ns: CLOCK_BOOTTIME. */
void fold_total(struct fold *f, const struct raw_total *t, uint64_t time_ns);
/*
 * Adds time for which a container's CPU limit kept it from running: us microseconds, in n periods
 * of the limit.
 */
void fold_throttled(struct fold *f, struct owner *owner, uint64_t us, uint64_t n);
/*
 * Adds a loss of n samples or of time_ns to the profiles of each event in event_mask (1 << enum
 * event). So a user who looks at one of these events sees the loss. owner NULL: a loss of the whole
 * node.
 */
void fold_lose(struct fold *f, const struct owner *owner, unsigned event_mask, const char *reason,
	       uint64_t n, uint64_t time_ns);
/* Returns the batch of the open window, in which the caller interns stacks. */
struct batch *fold_batch(struct fold *f);
/*
 * Notes that the machine was suspended for ns since the last fold_flush(). The next fold_flush()
 * then ends the window, which lasts only as long as the machine was awake. The next window begins
 * at the wake-up, and has the time asleep as a loss with the reason "asleep".
 */
void fold_note_sleep(struct fold *f, uint64_t ns);
/*
 * Closes the window if its end has passed, if the clock was set, if the machine slept, or if force
 * is set. *ret: the window, which the caller then owns; NULL: it is not closed, or it is empty.
 * Always returns 0.
 */
int fold_flush(struct fold *f, uint64_t now_boot_ns, uint64_t now_wall_ns, bool force,
	       struct batch **ret);
uint64_t fold_next_flush_ns(const struct fold *f);	/* CLOCK_BOOTTIME */
/*
 * Returns when the open window will end if the next flush is at boot_ns (CLOCK_BOOTTIME). If
 * boot_ns is late, the window is longer by whole windows.
 */
uint64_t fold_window_end_ns(const struct fold *f, uint64_t boot_ns);
