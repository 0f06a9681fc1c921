/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold: samples -> profiles of one window each. One profile a (process, event,
 * window); threads of one name merge here. Pipeline worker only.
 */
#pragma once

#include "node/stack/stack.h"

struct fold_config {
	const char *node_uid, *boot_id;	/* parts of the profile id */
	const char *node_name, *cluster_name;
	uint64_t window_ns;		/* 1..60 s */
	bool per_cpu;
	/* Wall time minus CLOCK_BOOTTIME, of start times of processes: they tell a process from another. 0: as it is now. */
	uint64_t start_offset_ns;
};
struct fold;
int fold_new(const struct fold_config *c, struct fold **ret);
struct fold *fold_free(struct fold *f);

/* What fold needs to know of a process besides the owner's tags. */
struct fold_process {
	struct process_id id;
	uint32_t container_pid;
	const char *comm;		/* of the leader: app_service */
	struct owner *owner;		/* borrowed; NULL: host process without a container */
};
/*
 * What is interned in fold_batch() and added between the two is of this owner (NULL: of no container, who may take all). false:
 * it has half of what the others leave of the window: its sample is to be lost as "window_full".
 */
bool fold_begin(struct fold *f, struct owner *owner);
void fold_end(struct fold *f);
/*
 * Adds a sample; its time is last_ns (CLOCK_BOOTTIME). stack is an index of fold_batch().
 * A sample of an earlier window than the open one goes to the open one and is counted late. Samples
 * that differ by their link are kept apart up to a budget; over it they go without, and are counted.
 * Of an event whose profiles are snapshots, samples of equal last_ns are one: the newest of a process
 * replaces the one that the open window has; one with n 0 and value 0 says that it is empty.
 * false: the window is full, and has the sample as lost.
 */
bool fold_add(struct fold *f, const struct fold_process *p, const struct raw_sample *s, const struct raw_names *names,
	      uint32_t stack);
/*
 * How much of an off-cpu sample's value was waited before boot_ns: it is spread evenly over the time that it was measured in,
 * which ends with last_ns. Of other events: all of it.
 */
uint64_t fold_value_before(const struct raw_sample *s, const struct owner *o, uint64_t boot_ns);
/*
 * What was folded of this owner's event since the last call is an estimate: of which share of what happened, in ppm (0: all), and
 * one standard error of its sum, in the event's unit. Errors of a window add up, those of snapshots replace each other.
 * The window's profiles share it out by their values.
 */
void fold_estimate(struct fold *f, struct owner *owner, enum event event, uint32_t ppm, uint64_t error);
void fold_total(struct fold *f, const struct raw_total *t, uint64_t time_ns);
/* A container was kept from running by its CPU limit for so long, in n periods of it. */
void fold_throttled(struct fold *f, struct owner *owner, uint64_t us, uint64_t n);
/* In each of these events (1 << enum event): whoever looks at one of them is told. owner may be NULL: a loss of the whole node. */
void fold_lose(struct fold *f, const struct owner *owner, unsigned event_mask, const char *reason, uint64_t n,
	       uint64_t time_ns);
/* The batch of the open window, to resolve stacks into. */
struct batch *fold_batch(struct fold *f);
/*
 * The machine was suspended for so long since the last fold_flush(). That ends the window: it is as long as it was awake, and
 * the next one begins at the flush and tells the sleep as loss "asleep".
 */
void fold_note_sleep(struct fold *f, uint64_t ns);
/* Closes the window when now is past its end (or force): *ret is NULL when there is nothing yet or nothing in it. */
int fold_flush(struct fold *f, uint64_t now_boot_ns, uint64_t now_wall_ns, bool force, struct batch **ret);
uint64_t fold_next_flush_ns(const struct fold *f);	/* CLOCK_BOOTTIME */
/* Where the open window ends if it is flushed at boot_ns: whole windows later, if that is so late. */
uint64_t fold_window_end_ns(const struct fold *f, uint64_t boot_ns);
