/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime: programs that run inside other programs: Python, Java, Lua. This module learns from a
 * process's files and memory which runtimes the process has. With these results, the kernel's part
 * (bpf/runtimes.h) walks their frames, and sends words. This module turns the words into names.
 * Each runtime has a directory (python/, jvm/) and a row in bpf/runtimes.h.
 * docs/adding-a-language.md.
 *
 * All functions run on the reader's thread, unless a comment says otherwise. In the agent of a node
 * that is the files worker, which gets a new thread when a process blocks it. In record it is the
 * main thread. All memory of a process is hostile.
 */
#pragma once

#include "bpf/runtimes.h"
#include "lib/profile/profile.h"
#include "lib/symbols/symbols.h"
#include "node/proc/proc.h"

#include <elf.h>

/* ---- the memory of a process ---- */
struct memory {
	/* Reads all n bytes, or fails. Returns 0 or -errno. */
	int (*read)(void *arg, uint64_t address, void *to, size_t n);
	void *arg;
	size_t budget_bytes; /* how many bytes may still be read; each read costs 64 bytes more */
	/*
	 * CLOCK_MONOTONIC: when the memory was opened; the frames to be named are older than that
	 */
	uint64_t opened_ns;
};
#define MEMORY_BUDGET (8u << 20) /* limit for one learn(); runtimes.c has the limits for names */
/* Reads n bytes. -E2BIG: the budget is used up. -EFAULT: the address is not mapped. */
int runtime_memory_read(struct memory *m, uint64_t address, void *to, size_t n);
int runtime_memory_u8(struct memory *m, uint64_t address, uint8_t *ret);
int runtime_memory_u16(struct memory *m, uint64_t address, uint16_t *ret);
int runtime_memory_u32(struct memory *m, uint64_t address, uint32_t *ret);
int runtime_memory_u64(struct memory *m, uint64_t address, uint64_t *ret);
/* Reads a string up to its NUL. If it has max bytes or more, it is cut. *ret is a new string. */
int runtime_memory_string(struct memory *m, uint64_t address, size_t max, char **ret);

/*
 * The memory of a live process: /proc/PID/mem. -ESRCH: the process has ended; its PID may be of
 * another process now.
 */
struct process_memory;
int runtime_process_memory_open(struct process_id id, struct process_memory **ret);
struct process_memory *runtime_process_memory_close(struct process_memory *p);
/* Returns the memory of p, which belongs to p. Each call sets its budget to MEMORY_BUDGET again. */
struct memory *runtime_process_memory(struct process_memory *p);

/* A process whose memory a child reads. */
struct runtime_asked {
	uint64_t charged_ns; /* whose process it is: of struct charged */
	struct process_memory *memory;
};

/* ---- used and returned by the files of a runtime ---- */

/* A range of a runtime's code: a part of a mapping. */
struct runtime_range {
	uint64_t start, end;
	/* PF_MANAGED: code that was made at run time; else the code is a part of a file */
	bool managed;
};
#define RUNTIME_RANGES_MAX 256	/* limit for one process */
#define RUNTIME_DATA_MAX   4096 /* bytes of a runtime's data for the kernel's side */

struct java_requests;
struct shares;
struct pf_rdma_functions; /* defined in bpf/rdma_abi.h */
/* The process in which learn() looks for a runtime. */
struct runtime_look {
	const struct mappings *maps;
	/* one index for each mapping; NULL: the mapping has none, or not yet */
	struct elf_index *const *indexes;
	struct memory *memory;
	const struct runtime_range *taken; /* ranges of the runtimes in earlier rows of the table */
	size_t n_taken;
	struct java_requests *java; /* as in runtime_learn() */
	/* for node/alloc: what the BPF programs have found in the process; NULL: nothing */
	const struct pf_rdma_functions *rdma;
};
/*
 * Finds the first mapping of a file that has this mark, and the address of the mark in the process.
 * -ENOENT: no file has it.
 */
int runtime_find_mark(const struct runtime_look *look, const char *mark,
		      const struct mapping **ret_mapping, uint64_t *ret_address,
		      uint64_t *ret_size);
/* Returns process address - ELF virtual address, for a mapping with an index. */
uint64_t runtime_bias(const struct runtime_look *look, const struct mapping *m);

/* The headers of an ELF file, read from the process's memory: hostile. */
#define LOADED_ELF_SEGMENTS_MAX 64 /* limit; real files have about 13 */
struct loaded_elf {
	struct memory *memory;
	uint64_t bias;	 /* process address - ELF virtual address */
	Elf64_Half type; /* ET_EXEC, ET_DYN */
	Elf64_Phdr segments[LOADED_ELF_SEGMENTS_MAX];
	size_t n;
};
/*
 * Reads the headers of the file that m maps. -ENOENT: no mapping has the headers. -EBADMSG: the
 * memory has no ELF header of x86-64. -E2BIG: the file has more than LOADED_ELF_SEGMENTS_MAX
 * segments.
 */
int runtime_loaded_elf_read(const struct runtime_look *look, const struct mapping *m,
			    struct loaded_elf *ret);
/* Returns the first segment of this type; NULL: the file has none. */
const Elf64_Phdr *runtime_loaded_elf_segment(const struct loaded_elf *e, uint32_t type);

/* Returns the first mapping of a Go program or library; NULL: the process has none. */
const struct mapping *runtime_go_find(const struct runtime_look *look,
				      const struct elf_index **ret_index);
/*
 * Finds the version: "go1.26.8"; "": a Go before 1.18 built the program. -ENOENT: the program has
 * no version.
 */
int runtime_go_version(const struct loaded_elf *e, char *ret, size_t n);
/* Returns 26 for "go1.26.8"; 0: the version is not a numbered release. */
unsigned runtime_go_minor(const char *version);

#define RUNTIME_PROBLEM_BYTES 160
/* Results of learn() for one runtime of a process. */
struct runtime_learnt {
	/*
	 * struct pf_<name> for the kernel's part, malloc'd. NULL: the kernel's part does not walk
	 * the runtime's frames.
	 */
	void *data;
	size_t data_bytes;
	struct runtime_range *ranges; /* malloc'd, in any order */
	size_t n_ranges;
	char version[48]; /* "3.11.2", "17.0.15+6-LTS" */
	/* One sentence for a user: why no frames are walked, or not all; "": all are walked. */
	char problem[RUNTIME_PROBLEM_BYTES];
	void *state; /* private data of the runtime for resolve(); forget() releases it */
};

/* One frame as the kernel's part sent it. The members are arguments of pf_push_runtime(). */
struct runtime_words {
	uint8_t type;
	uint64_t a, b;
};
struct runtime_name {
	/*
	 * The name as it is shown: "json.decoder.JSONDecoder.decode", "java/lang/String::hashCode".
	 */
	char *name;
	char *file;    /* NULL: not known */
	uint32_t line; /* the line that the frame was running; 0: not known */
	bool inlined;
};
#define RUNTIME_NAMES_MAX 64 /* names of one frame; further ones are counted */
/*
 * The functions of one frame, root first. An inlined function comes after the one that it is
 * inlined into.
 */
struct runtime_names {
	struct runtime_name *items; /* NULL, with n 0: the frame is not shown */
	size_t n;
	enum frame_kind kind; /* mostly the kind of the runtime; FRAME_LIBRARY for its stubs */
};
void runtime_names_done(struct runtime_names *n);
size_t runtime_names_bytes(const struct runtime_names *n);
/*
 * Adds a name. Takes ownership of name and file. Names over RUNTIME_NAMES_MAX are dropped and
 * counted.
 */
void runtime_names_add(struct runtime_names *n, char *name, char *file, uint32_t line,
		       bool inlined);

struct runtime_ops {
	const char *name;  /* such as "python": for counters, markers, messages */
	const char *title; /* such as "CPython" */
	enum frame_kind frame_kind;
	/*
	 * After this time a name is read again. 0: after a minute. That suffices if a frame's words
	 * show which function was at the address.
	 */
	uint64_t names_last_ns;
	bool by_caller; /* the caller's code has the function's name, so resolve needs the caller */
	/*
	 * learn, resolve and forget run in the agent, because they open files and ask a child
	 * themselves. Else they run in a child of the process's namespace (reader.h): they see a
	 * copy of the mappings, and of the indexes only what `marks`, `rows` and `go_symbols` say.
	 */
	bool in_agent;
	bool rows; /* learn reads the unwind rows of files that have its marks */
	/* symbols that learn looks for in Go programs, NULL at the end; NULL: none */
	const char *const *go_symbols;
	/*
	 * The marks that learn looks for in files; NULL at the end. A mark is the name of a symbol
	 * of any kind ("_PyRuntime"; a '*' at the end stands for any text), or a '"' and then a
	 * text of read-only data ("\"$LuaVersion: Lua 5.").
	 */
	const char *const *marks;
	/*
	 * Finds out whether the process has this runtime, and what the kernel's part needs. The
	 * caller calls this function again when mappings or files change. old: the previous result;
	 * NULL: there is none. The function may move old's state to ret, and then sets old->state
	 * to NULL. -ENOENT: the process does not have the runtime. -EAGAIN: the runtime is just
	 * starting, and the caller tries again soon. Other errors are counted by errno. If the
	 * version is unknown, that is not an error: ret->problem has a text.
	 */
	int (*learn)(const struct runtime_look *look, struct runtime_learnt *old,
		     struct runtime_learnt *ret);
	/*
	 * Reads the names of one frame. caller: the next frame of the same runtime towards the
	 * root; NULL: there is none. -ESTALE: the memory was freed or used again, so a name could
	 * be wrong. The function may keep in its state what it reads. In a row of PF_CONTEXTS,
	 * which has no frames, resolve and forget are NULL.
	 */
	int (*resolve)(void *state, struct memory *m, const struct runtime_words *frame,
		       const struct runtime_words *caller, struct runtime_names *ret);
	void (*forget)(void *state);
};
/* Each row of PF_RUNTIMES and PF_CONTEXTS has its ops. NULL: there is no such kind. */
const struct runtime_ops *runtime_ops(enum pf_runtime_kind k);
/*
 * Returns whether k is a row of PF_CONTEXTS. Such a row gives the trace ids of the request that a
 * thread works on. No frames are shown for it.
 */
bool runtime_is_context(enum pf_runtime_kind k);
/* Returns all marks of all runtimes, for parser_config.marks; NULL at the end. */
const char *const *runtime_marks(void);
/* Returns the text of a frame of PF_TYPE_TROUBLE, "[python: not_in_memory]"; a new string. */
char *runtime_trouble_text(enum pf_runtime_kind k, uint64_t trouble);
const char *runtime_trouble_word(uint64_t trouble);

/* ---- the runtimes of a process ---- */
struct runtime_process; /* the runtimes of one exec of a process; reference counted, any thread */
struct runtime_process *runtime_process_ref(struct runtime_process *p);
struct runtime_process *runtime_process_unref(struct runtime_process *p);
/*
 * Runs on the reader's thread. Looks for all runtimes in a process. p: the previous result, or
 * NULL. The new result shares the states of p, and p stays valid for others that have a reference.
 * *ret: if nothing changed, p with one more reference; NULL: the process has no runtime.
 * *ret_again: a runtime is just starting, and the caller looks again in a moment. indexes: as in
 * struct runtime_look. java: this function notes in `java` the JVMs whose code has no names, and
 * takes from it the maps that they have given; NULL: no JVM is asked. -ESRCH: the process has
 * ended. -EBUSY: another thread is blocked in the process's memory, or no child of the process's
 * namespace reads it now.
 */
int runtime_learn(struct runtime_process *p, const struct mappings *maps,
		  struct elf_index *const *indexes, struct java_requests *java,
		  struct runtime_process **ret, bool *ret_again);
/*
 * Returns false if runtime_learn() would find nothing: no file has a mark, and no code is
 * generated. Any thread.
 */
bool runtime_likely(const struct mappings *maps, struct elf_index *const *indexes);
/* Returns whether the file may have a runtime: it has a mark of one. Any thread. */
bool runtime_is_in(const struct elf_index *index);
/*
 * Returns whether the mapping looks like code that was made at run time: it is memory without a
 * file, or a file in memory that is not a program (.NET writes its code through one mapping and
 * runs it in another). index: the index of the mapping's file; NULL: it has none.
 */
bool runtime_mapping_is_generated(const struct mapping *m, const struct elf_index *index);

/* One runtime of a process. Any thread may use it. It belongs to the struct runtime_process. */
struct runtime_view {
	enum pf_runtime_kind kind;
	const struct runtime_learnt *learnt;
};
size_t runtime_process_n(const struct runtime_process *p);
/* i: the same index as in the kernel's part */
struct runtime_view runtime_process_at(const struct runtime_process *p, size_t i);

/*
 * Returns the index of the unwind rows that the process has published for its generated code
 * (docs/generated-code.md). Its addresses are those of the process. NULL: there are none. It
 * belongs to p.
 */
struct elf_index *runtime_process_generated(const struct runtime_process *p);
/*
 * Returns whether the process publishes such rows, now or perhaps later. If a stack ends in its
 * generated code, a new runtime_learn() may find the rows.
 */
bool runtime_process_publishes(const struct runtime_process *p);

/*
 * A runtime that podflame recognises but does not walk (recognised.c): the functions of its program
 * have no names. All rows are constants.
 */
struct runtime_recognised {
	const char *name, *title; /* such as "ruby" and "Ruby" */
	const char *text;	  /* for a user: what has no names, and how to get names */
	bool by_map;		  /* a perf map can name its functions */
};
#define RUNTIME_RECOGNISED_MAX 16 /* recognised runtimes of one process */
size_t runtime_process_n_recognised(const struct runtime_process *p);
const struct runtime_recognised *runtime_process_recognised(const struct runtime_process *p,
							    size_t i);
/* Returns whether the process has a perf map, which names functions of a recognised runtime. */
bool runtime_process_has_map(const struct runtime_process *p);

/* One frame to be named. If the names cannot be read, error is set and names.n is 0. */
struct runtime_ask {
	enum pf_runtime_kind kind;
	struct runtime_words frame, caller;
	bool has_caller;
	/* results */
	struct runtime_names names;
	int error; /* 0 or -errno */
};
/* From what a child that has forgotten a process learns it again; NULL: it does not learn it. */
struct runtime_source {
	const struct mappings *maps; /* of the same exec of the process */
	/*
	 * Returns a new reference to the index of the mapping's file; NULL: it has none, or not
	 * yet.
	 */
	struct elf_index *(*index)(void *arg, const struct mapping *m);
	void *arg;
};
/*
 * Runs on the reader's thread. Reads the names of n frames. -ESRCH: the process has ended. -EBUSY:
 * another thread is blocked in the process's memory. Frames that no child reads now have the error
 * -EBUSY, too.
 */
int runtime_resolve(struct runtime_process *p, const struct runtime_source *from,
		    struct runtime_ask *asks, size_t n);
/*
 * Runs on the reader's thread. Reads the rows of generated code that the process publishes now.
 * *ret NULL: there are none. -ESRCH: the process has ended. -EAGAIN: its files are not parsed.
 * -EBUSY: another thread is blocked in the process's memory, or no child of the process's namespace
 * reads it now. -E2BIG: its files exceed the limit of what a child is told. -EBADMSG: the child
 * lies.
 */
int runtime_generated_now(struct runtime_process *p, const struct runtime_source *from,
			  struct elf_index **ret);
/*
 * Runs on the reader's thread. Reads one byte at each address. So the pages are in memory when the
 * kernel's part reads them next time.
 */
void runtime_touch(struct runtime_process *p, const uint64_t *addresses, size_t n);

/*
 * Adds to `to` each namespace (struct charged) that had more functions in perf maps than its share
 * since the last call. Any thread.
 */
void runtime_perf_maps_refused(struct shares *to);

/* ---- javaAttach: the agent asks a JVM for its perf map; docs/perf-maps.md ---- */
/*
 * The JVMs that need a map, and the maps that they have given. Reference counted; a runtime_process
 * holds a reference. Any thread. If there are more JVMs than the limit, some are forgotten.
 */
#define JAVA_REQUESTS_MAX 256
struct java_requests *runtime_java_requests_new(void);
/* returns NULL for NULL */
struct java_requests *runtime_java_requests_ref(struct java_requests *q);
struct java_requests *runtime_java_requests_unref(struct java_requests *q);
/*
 * Returns whether the process is a JVM with generated code that has no names: the kernel's part
 * does not walk it, and it has no map, or its map lacks names.
 */
bool runtime_java_unnamed(struct java_requests *q, struct process_id id);
/* Writes the ids of all such JVMs to ret. Returns how many there are. */
size_t runtime_java_all_unnamed(struct java_requests *q, struct process_id ret[JAVA_REQUESTS_MAX]);
/*
 * Asks the JVM for its map. Blocks for at most 20 s, so the caller needs a thread that may wait.
 * version: the JVM's version, as learnt. 0: the next runtime_learn() and runtime_resolve() use the
 * map. -EAGAIN: it may work later. Other errors: it will never work. ret_problem: the reason, for a
 * user.
 */
int runtime_java_attach(struct java_requests *q, struct process_id id, const char *version,
			char ret_problem[RUNTIME_PROBLEM_BYTES]);
