/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine: what the agent gives up when it starts, so that somebody who takes it over can do less
 * on the node. The agent keeps what it works with: BPF, perf events, the memory and the files of
 * other processes. docs/security.md says what this keeps out, and what not.
 *
 * The functions are for a program with one thread: threads and children that it makes later inherit
 * the limits. Each can be called once, in the order in which they stand here.
 */
#pragma once

#include "lib/base/base.h"

/*
 * Makes a directory that the agent writes, if it does not exist, and gives it to `user`, so that
 * nobody else can read it. Needs CHOWN; without it, a directory that exists stays as it is. -errno:
 * it cannot be made, or not for this user; then it does not exist, and the user can still make it.
 */
int confine_directory(const char *path, unsigned user);
/*
 * Makes all file systems of the process read-only except the directories in `writable`, which
 * exist (NULL and "" are left out). With CAP_SYS_ADMIN, the process gets a mount namespace of its
 * own. Without it, the function only finds out whether the root is read-only already, as in the
 * pod of the chart. -errno: it is not, or not all mounts could be changed.
 */
int confine_mounts(const char *const *writable, size_t n);
/*
 * Makes `user`, which is not 0, the user and the group of the process. Of its capabilities, the
 * process keeps those that the agent works with. Needs SETUID and SETGID. -EPERM: the user is as
 * before.
 */
int confine_user(unsigned user);
/*
 * Returns why this kernel needs SYS_ADMIN for the agent's work, for a user; NULL: it does not.
 * Kernels of Debian and Ubuntu demand it for perf events, unless the node's administrator has
 * lowered kernel.perf_event_paranoid. Any thread.
 */
const char *confine_needs_sys_admin(void);
/*
 * Limits the process to the system calls that the agent and its children make. The kernel answers
 * others with ENOSYS, and logs them if it has an audit log. The children can limit themselves more.
 * 0 or -errno.
 */
int confine_calls(void);
/*
 * Why the limit is not in force, for a user; "": it is. NULL: nobody has asked for it (`podflame
 * local`). Any thread, after the functions above.
 */
const char *confine_mounts_problem(void);
const char *confine_user_problem(void);
const char *confine_calls_problem(void);
