// SPDX-License-Identifier: Apache-2.0
#include "session.h"
#include "clock.h"
#include "cupti.h"
#include "launch.h"
#include "probes.h"
#include "sampling.h"
#include "work.h"

/*
 * How long the library waits after a failure before it tries again: another profiler may have left.
 */
#define RETRY_NS (60 * NSEC_PER_SEC)
/*
 * What a callback costs the program, with CUPTI's part and that of the record of the work. A launch
 * has four callbacks, and took 1.6 us more of its thread's CPU time (an H200, CUPTI 13.0).
 */
#define CALLBACK_NS 400
/*
 * How long stop() asks CUPTI to give back the library's buffers. After this time, it assumes that
 * another profiler has them.
 */
#define DISPLACED_NS (5 * NSEC_PER_SEC)

/*
 * Device memory in which CUPTI may keep times, for each context: DEVICE_BUFFERS buffers of this
 * size. CUPTI's default limit is 250 buffers of 3.2 MB.
 */
#define DEVICE_BUFFER_BYTES (1024 * 1024)
#define DEVICE_BUFFERS	    16

static const int activities[] = {CUPTI_CONCURRENT_KERNEL, CUPTI_MEMCPY, CUPTI_MEMCPY2,
				 CUPTI_MEMSET};
#define N_ACTIVITIES (sizeof(activities) / sizeof(activities[0]))

static enum podflame_cuda_state state;
static const struct cupti *cupti;
static void *subscriber;
static uint64_t retry_ns;
static uint64_t stop_ns;   /* when stop() first asked for the buffers; 0: it has not */
static uint32_t stop_mark; /* work_mark() when stop() first asked for the buffers */
static uint64_t watcher_cpu_ns;

static void set_state(enum podflame_cuda_state new_state, int code)
{
	state = new_state;
	__atomic_store_n(&work_counts.state, new_state, __ATOMIC_RELAXED);
	__atomic_store_n(&work_counts.code, (uint32_t)code, __ATOMIC_RELAXED);
}

static void tell_status(void)
{
	struct podflame_cuda_status status;

	if (!usdt_wanted(&probe_status_semaphore))
		return;
	work_counts_get(&status);
	status.level = sampling_level();
	status.n_callbacks = launch_n_callbacks();
	status.own_ns += watcher_cpu_ns + status.n_callbacks * CALLBACK_NS;
	probe_status(&status, sizeof(status));
}

/* ---- start ---- */

static void limit_device_memory(void)
{
	size_t bytes = DEVICE_BUFFER_BYTES, n = DEVICE_BUFFERS, size = sizeof(size_t);

	/* a CUPTI that does not know these attributes keeps its default limit */
	cupti->ActivitySetAttribute(CUPTI_DEVICE_BUFFER_SIZE, &size, &bytes);
	cupti->ActivitySetAttribute(CUPTI_DEVICE_BUFFER_POOL_LIMIT, &size, &n);
}

static void disable_activities(size_t n)
{
	for (size_t i = 0; i < n; i++)
		cupti->ActivityDisable(activities[i]);
}

/* Enables all activities; none if one of them fails. Returns a CUptiResult. */
static int enable_activities(void)
{
	int err;

	for (size_t i = 0; i < N_ACTIVITIES; i++) {
		err = cupti->ActivityEnable(activities[i]);
		if (err != CUPTI_OK) {
			disable_activities(i);
			return err;
		}
	}
	return CUPTI_OK;
}

/* Turns on callbacks and activities. Returns a CUptiResult. */
static int enable_all(void)
{
	int err = launch_enable(cupti, subscriber);

	limit_device_memory();
	if (err == CUPTI_OK)
		err = cupti->ActivityRegisterCallbacks(work_buffer_requested,
						       work_buffer_completed);
	return err == CUPTI_OK ? enable_activities() : err;
}

static void fail(enum podflame_cuda_state why, int code, uint64_t now)
{
	set_state(why, code);
	retry_ns = now + RETRY_NS;
}

/* Opens CUPTI and reads its version. Returns whether the library can use it. */
static bool find_cupti(uint64_t now)
{
	uint32_t version = 0;
	int err;

	cupti = cupti_open();
	if (!cupti) {
		fail(PODFLAME_CUDA_NO_CUPTI, 0, now);
		return false;
	}
	err = cupti->GetVersion(&version);
	__atomic_store_n(&work_counts.cupti_version, version, __ATOMIC_RELAXED);
	if (err != CUPTI_OK)
		fail(PODFLAME_CUDA_FAILED, err, now);
	else if (version < CUPTI_OF_CUDA_11)
		fail(PODFLAME_CUDA_TOO_OLD, CUPTI_OK, now);
	return err == CUPTI_OK && version >= CUPTI_OF_CUDA_11;
}

/*
 * Subscribes and turns everything on. Returns a CUptiResult. After an error everything is off
 * again, but a CUPTI that had a subscriber stays in the process.
 */
static int begin(uint64_t now)
{
	int err;

	sampling_begin(now);
	err = cupti->Subscribe(&subscriber, launch_callback, NULL);
	if (err != CUPTI_OK)
		return err;
	err = work_begin(cupti) == 0 ? enable_all() : CUPTI_OUT_OF_MEMORY;
	if (err != CUPTI_OK) {
		cupti->Unsubscribe(subscriber);
		work_end();
		WORK_COUNT(n_not_removed, 1);
	}
	return err;
}

/*
 * Starts CUPTI, half a second after it was opened: libcupti's code is on the stack of each launch,
 * so a profiler that walks stacks needs to know it. In this time it can learn of the new code: the
 * status, which follows each step, tells it that the process has mapped some.
 */
static void start(uint64_t now)
{
	bool was_open = cupti;
	int err;

	if (!find_cupti(now) || !was_open)
		return;
	err = begin(now);
	if (err == CUPTI_OTHER_SUBSCRIBER) {
		fail(PODFLAME_CUDA_REFUSED, err, now);
	} else if (err != CUPTI_OK) {
		fail(PODFLAME_CUDA_FAILED, err, now);
	} else {
		WORK_COUNT(n_sessions, 1);
		set_state(PODFLAME_CUDA_RUNNING, CUPTI_OK);
	}
}

/* ---- stop ---- */

/*
 * Ends the session, because another profiler has registered its callbacks for buffers, before the
 * library or after it. CUPTI has only one pair of such callbacks. The other profiler may be at
 * work, so this function turns off no activity.
 */
static void leave_to_other(uint64_t now)
{
	cupti->Unsubscribe(subscriber);
	work_end();
	WORK_COUNT(n_displaced, 1);
	fail(PODFLAME_CUDA_REFUSED, CUPTI_OTHER_SUBSCRIBER, now);
}

/*
 * Whether CUPTI may be removed from the process. Before CUDA 12.6, cuptiFinalize() can crash
 * programs that have CUDA graphs (release notes of CUDA 12.4 Update 1; PyTorch pull request
 * 150957). Such a CUPTI stays in the process, without a subscriber.
 */
static bool is_removable(void)
{
	return work_counts.cupti_version >= CUPTI_OF_CUDA_12_6;
}

/*
 * Asks CUPTI to give back all buffers. Returns whether all have come back. If they have not come
 * back after DISPLACED_NS, another profiler has them, and this function ends the session.
 */
static bool get_buffers_back(uint64_t now)
{
	if (stop_ns == 0) {
		stop_ns = now;
		stop_mark = work_mark();
	}
	cupti->ActivityFlushAll(CUPTI_FLUSH_FORCED);
	if (!work_is_kept_since(stop_mark) && !work_met_other())
		return true;
	if (now - stop_ns >= DISPLACED_NS || work_met_other())
		leave_to_other(now);
	return false;
}

/*
 * Ends the session. If a buffer has not come back, the session goes on, and the next step tries
 * again.
 */
static void stop(uint64_t now)
{
	if (!get_buffers_back(now))
		return;
	disable_activities(N_ACTIVITIES);
	cupti->ActivityFlushAll(CUPTI_FLUSH_FORCED);
	work_end();
	if (is_removable()) {
		launch_remove_cupti(cupti, subscriber);
		set_state(PODFLAME_CUDA_STOPPING, CUPTI_OK);
	} else {
		cupti->Unsubscribe(subscriber);
		WORK_COUNT(n_not_removed, 1);
		set_state(PODFLAME_CUDA_IDLE, CUPTI_OK);
	}
}

static void flush(uint64_t now)
{
	cupti->ActivityFlushAll(0);
	if (work_met_other())
		leave_to_other(now);
}

/* Begins a new session, if CUPTI is wanted again before a call of CUDA has removed it. */
static void restart(uint64_t now)
{
	if (!launch_keep_cupti())
		return;
	cupti->Unsubscribe(subscriber);
	start(now);
}

/* ---- */

static void step(uint64_t now)
{
	bool wanted = usdt_wanted(&probe_launch_semaphore) || usdt_wanted(&probe_work_semaphore);

	if (wanted)
		stop_ns = 0;
	if (state == PODFLAME_CUDA_STOPPING && launch_is_removed())
		set_state(PODFLAME_CUDA_IDLE, CUPTI_OK);
	if (state == PODFLAME_CUDA_RUNNING && wanted)
		flush(now);
	else if (state == PODFLAME_CUDA_RUNNING)
		stop(now);
	else if (state == PODFLAME_CUDA_STOPPING && wanted)
		restart(now);
	else if (wanted && now >= retry_ns)
		start(now);
}

void session_step(uint64_t now)
{
	step(now);
	if (state == PODFLAME_CUDA_RUNNING)
		sampling_adjust(now);
	watcher_cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	tell_status();
}

uint32_t session_number(void)
{
	return __atomic_load_n(&work_counts.n_sessions, __ATOMIC_RELAXED);
}

void session_at_exit(void)
{
	if (state == PODFLAME_CUDA_RUNNING)
		cupti->ActivityFlushAll(CUPTI_FLUSH_FORCED);
	tell_status();
}
