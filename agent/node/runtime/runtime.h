/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime: programs that run inside other programs: Python, Java, Lua. What a process runs is learnt
 * from its files and its memory; the kernel's part (bpf/runtimes.h) walks its frames by what was
 * learnt; here the words of these frames become names. A directory a runtime (python/, jvm/), a row
 * in bpf/runtimes.h. docs/adding-a-language.md.
 *
 * Everything here but the borrowing functions of struct runtime_process runs on the reader's thread (node: files worker, which is
 * replaced when a process blocks it; record: the main thread). All memory of a process is hostile.
 */
#pragma once

#include "bpf/runtimes.h"
#include "lib/profile/profile.h"
#include "lib/symbols/symbols.h"
#include "node/proc/proc.h"

#include <elf.h>

/* ---- the memory of a process ---- */
struct memory {
	int (*read)(void *arg, uint64_t address, void *to,
		    size_t n); /* 0 or -errno; all or nothing */
	void *arg;
	size_t budget_bytes; /* what may still be read; each read costs 64 bytes more */
	uint64_t opened_ns;  /* CLOCK_MONOTONIC; the frames that are asked for were there before */
};
#define MEMORY_BUDGET (8u << 20) /* of one learn or resolve */
/* -E2BIG: the budget is used up. -EFAULT: not mapped. */
int runtime_memory_read(struct memory *m, uint64_t address, void *to, size_t n);
int runtime_memory_u8(struct memory *m, uint64_t address, uint8_t *ret);
int runtime_memory_u16(struct memory *m, uint64_t address, uint16_t *ret);
int runtime_memory_u32(struct memory *m, uint64_t address, uint32_t *ret);
int runtime_memory_u64(struct memory *m, uint64_t address, uint64_t *ret);
/* NUL-terminated, at most max bytes with it, else cut; a new string. */
int runtime_memory_string(struct memory *m, uint64_t address, size_t max, char **ret);

/* A live process's: /proc/PID/mem. -ESRCH: gone, or another one by now. */
struct process_memory;
int runtime_process_memory_open(struct process_id id, struct process_memory **ret);
struct process_memory *runtime_process_memory_close(struct process_memory *p);
struct memory *runtime_process_memory(struct process_memory *p); /* with a full budget */

/* ---- what a runtime's file gives ---- */

/* Code of a runtime: pieces of mappings. */
struct runtime_range {
	uint64_t start, end;
	bool managed; /* PF_MANAGED: made at run time; else part of a file's text */
};
#define RUNTIME_RANGES_MAX 256 /* of one process */
#define RUNTIME_DATA_MAX   4096

/* What is looked at. Mappings may have no index (yet): NULL. */
struct runtime_look {
	const struct mappings *maps;
	struct elf_index *const *indexes; /* of each mapping */
	struct memory *memory;
	const struct runtime_range *taken; /* what the runtimes of the rows before have */
	size_t n_taken;
};
/* The first mapping of a file with this mark, and where the mark is in the process; -ENOENT. */
int runtime_find_mark(const struct runtime_look *look, const char *mark,
		      const struct mapping **ret_mapping, uint64_t *ret_address,
		      uint64_t *ret_size);
/* Process address - ELF virtual address of a mapping with an index. */
uint64_t runtime_bias(const struct runtime_look *look, const struct mapping *m);

/* The headers of an ELF file as they lie in the process: hostile. */
#define LOADED_ELF_SEGMENTS_MAX 64 /* real files have about 13 */
struct loaded_elf {
	struct memory *memory;
	uint64_t bias;	 /* process address - ELF virtual address */
	Elf64_Half type; /* ET_EXEC, ET_DYN */
	Elf64_Phdr segments[LOADED_ELF_SEGMENTS_MAX];
	size_t n;
};
/*
 * -ENOENT: no mapping has the headers. -EBADMSG: there is no ELF header of x86-64.
 * -E2BIG: the file has more than LOADED_ELF_SEGMENTS_MAX segments.
 */
int runtime_loaded_elf_read(const struct runtime_look *look, const struct mapping *m,
		    struct loaded_elf *ret);
/* The first segment of this type; NULL: there is none. */
const Elf64_Phdr *runtime_loaded_elf_segment(const struct loaded_elf *e, uint32_t type);

/* The first mapping of a Go program or library; NULL: the process has none. */
const struct mapping *runtime_go_find(const struct runtime_look *look,
				      const struct elf_index **ret_index);
/* "go1.26.8"; "": a Go before 1.18 built it. -ENOENT: the program does not say. */
int runtime_go_version(const struct loaded_elf *e, char *ret, size_t n);
/* Of "go1.26.8" 26; 0: not a release that has a number. */
unsigned runtime_go_minor(const char *version);

#define RUNTIME_PROBLEM_BYTES 160
struct runtime_learnt {
	void *data; /* struct pf_<name> for the kernel; malloc'd; NULL: it is not walked, problem says why */
	size_t data_bytes;
	struct runtime_range *ranges; /* malloc'd, any order */
	size_t n_ranges;
	char version[48]; /* "3.11.2", "17.0.15+6-LTS" */
	/* Why it is not (wholly) walked, for its user, one sentence; "": all is well. */
	char problem[RUNTIME_PROBLEM_BYTES];
	void *state; /* its own, for resolve; forget() releases it */
};

/* One frame as the kernel sent it: what pf_push_runtime() was given. */
struct runtime_words {
	uint8_t type;
	uint64_t a, b;
};
/* What it is: root first; inlined functions after the one they are inlined into. */
struct runtime_name {
	char *name; /* as it is shown: "json.decoder.JSONDecoder.decode", "java/lang/String::hashCode" */
	char *file;    /* NULL: not known */
	uint32_t line; /* where it stands, 0: not known */
	bool inlined;
};
#define RUNTIME_NAMES_MAX 64
struct runtime_names {
	struct runtime_name *items; /* NULL, n 0: nothing to show for this frame */
	size_t n;
	enum frame_kind kind; /* mostly the runtime's own; FRAME_LIBRARY for its stubs */
};
void runtime_names_done(struct runtime_names *n);
size_t runtime_names_bytes(const struct runtime_names *n);
void runtime_names_add(struct runtime_names *n, char *name /* taken */, char *file /* taken */,
		       uint32_t line, bool inlined);

struct runtime_ops {
	const char *name;  /* "python": of counters, markers, messages */
	const char *title; /* "CPython" */
	enum frame_kind frame_kind;
	/* How long a name holds before it is asked for again; 0: a minute, where words tell what was at an address. */
	uint64_t names_last_ns;
	bool by_caller; /* a function has the name that its caller calls it by: resolve needs the caller */
	/*
	 * What its learn needs to find in files: names of symbols of any kind ("_PyRuntime"; a last '*'
	 * stands for any rest), and, after a '"', texts of read-only data ("\"$LuaVersion: Lua 5."). NULL at the end.
	 */
	const char *const *marks;
	/*
	 * Whether the process runs it, and all that the kernel needs. Called again when mappings or files change, old being
	 * what it said before (NULL: nothing; its state may be moved to ret: then set old->state NULL). -ENOENT: not here. -EAGAIN: it is, but is just
	 * starting: asked again soon. Other errors are counted by errno. A version that is not known is no error: problem.
	 */
	int (*learn)(const struct runtime_look *look, struct runtime_learnt *old,
		     struct runtime_learnt *ret);
	/*
	 * Names of one frame; caller: the next frame of the same runtime towards the root, NULL: none. -ESTALE: what is
	 * there now is something else (freed, used again): never a wrong name. May keep what it reads in its state. NULL, as
	 * forget, of a row of PF_CONTEXTS without frames.
	 */
	int (*resolve)(void *state, struct memory *m, const struct runtime_words *frame,
		       const struct runtime_words *caller, struct runtime_names *ret);
	void (*forget)(void *state);
};
/* NULL: no such kind. One variable name_runtime a row of PF_RUNTIMES and PF_CONTEXTS. */
const struct runtime_ops *runtime_ops(enum pf_runtime_kind k);
/* A row of PF_CONTEXTS: it tells which call a thread works on, and has no functions of its own to show. */
bool runtime_is_context(enum pf_runtime_kind k);
/* All marks of all runtimes, for parser_config.marks; NULL at the end. */
const char *const *runtime_marks(void);
/* "[python: not_in_memory]": a frame of PF_TYPE_TROUBLE; interned by the caller. */
char *runtime_trouble_text(enum pf_runtime_kind k, uint64_t trouble);
const char *runtime_trouble_word(uint64_t trouble);

/* ---- what a process runs ---- */
struct runtime_process; /* reference counted, shared between threads; one exec of one process */
struct runtime_process *runtime_process_ref(struct runtime_process *p);
struct runtime_process *runtime_process_unref(struct runtime_process *p);
/*
 * Reader's thread. Looks for all runtimes; p's states live on. The result replaces p (which stays valid for who
 * has it), or is p with one reference more when nothing changed. *ret NULL: it runs none. *ret_again: one is
 * just starting; look again in a moment. indexes as runtime_look has them.
 */
int runtime_learn(struct runtime_process *p, const struct mappings *maps,
		   struct elf_index *const *indexes, struct runtime_process **ret, bool *ret_again);
/* Whether a look may find anything: some file has a mark, or there is generated code. Any thread. */
bool runtime_likely(const struct mappings *maps, struct elf_index *const *indexes);
/*
 * Whether a mapping's code was made at run time, as far as the mapping shows it: memory without a file, or a file in memory that is
 * no program (.NET writes its code through one mapping and runs it in another). index: its file's; NULL: none.
 */
bool runtime_mapping_is_generated(const struct mapping *m, const struct elf_index *index);

/* Any thread; borrowed from p. */
struct runtime_view {
	enum pf_runtime_kind kind;
	const struct runtime_learnt *learnt;
};
size_t runtime_process_n(const struct runtime_process *p);
struct runtime_view runtime_process_at(const struct runtime_process *p,
				       size_t i); /* i is the kernel's index, too */

/*
 * A runtime that podflame recognises and does not walk (recognised.c): functions of its program have no
 * names. Constants.
 */
struct runtime_recognised {
	const char *name, *title; /* "ruby", "Ruby" */
	const char *text;	  /* what has no names, and what works; for its user */
	bool by_map;		  /* a perf map names its functions */
};
#define RUNTIME_RECOGNISED_MAX 16
size_t runtime_process_n_recognised(const struct runtime_process *p);
const struct runtime_recognised *runtime_process_recognised(const struct runtime_process *p,
							    size_t i);
/* The process has a perf map, which names functions of a recognised runtime. */
bool runtime_process_has_map(const struct runtime_process *p);

/* Reader's thread: names of frames. One a frame in n; those that could not be told have n 0 and error set. */
struct runtime_ask {
	enum pf_runtime_kind kind;
	struct runtime_words frame, caller;
	bool has_caller;
	/* out */
	struct runtime_names names;
	int error; /* 0 or -errno */
};
/* -ESRCH: the process is gone. -EBUSY: another thread is stuck in it. */
int runtime_resolve(struct runtime_process *p, struct runtime_ask *asks, size_t n);
/* Reads one byte at each address, so that the pages are there for the kernel's part next time. */
void runtime_touch(struct runtime_process *p, const uint64_t *addresses, size_t n);

/* ---- javaAttach: a JVM is asked for its perf map; docs/perf-maps.md ---- */
/* A JVM with generated code that nobody can name: not walked and without a map, or names are missing in it. Any thread. */
bool runtime_java_unnamed(struct process_id id);
/* All of them, at most max; returns how many. */
size_t runtime_java_all_unnamed(struct process_id *ret, size_t max);
/*
 * Blocks for 20 s at most: a thread that may wait. version: of the JVM, as its runtime learnt it. 0: the next
 * runtime_learn and runtime_resolve have the map. -EAGAIN: may work later; other errors: it won't. Why not, for its user, in ret_problem.
 */
int runtime_java_attach(struct process_id id, const char *version,
			char ret_problem[RUNTIME_PROBLEM_BYTES]);
