/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * unwind_tables: the unwind tables, which the parse child (the agent's process that reads ELF
 * files) makes and the unwinder reads. All types have a fixed width. The machine code of a file is
 * cut into pages of 64 KiB. A page has rows; a row says which rule holds from its address on; a
 * rule says where the caller's frame is. Each rule is stored once per file. A row has 4 bytes:
 * address within the page, and rule. No other layout in the field is denser.
 */
#pragma once

#ifndef __bpf__
#include <stdint.h>
#endif

/* ---- one file's table ---- */
#define PF_PAGE_BITS	 16
#define PF_PAGE_BYTES	 (1u << PF_PAGE_BITS)
#define PF_RULES_MAX	 4096  /* limit for the rules of one file; real files have 8 to 600 */
/* limit for the rows of one page: they fit into one chunk; real pages have about 1,000 */
#define PF_PAGE_ROWS_MAX 16384

struct pf_row {
	uint16_t address; /* low bits of the first address for which the row holds */
	uint16_t rule;	  /* index into the file's rules, or one of enum pf_rule_special */
};

/*
 * The rows of a page ascend by address. The first row has address 0; its rule is the one with which
 * the page before ends.
 */
enum pf_rule_special {
	PF_RULE_GAP = 0xffff,  /* no rule: the frame pointer or the bytes of the code decide */
	PF_RULE_ROOT = 0xfffe, /* the outermost frame: its return address is undefined */
	PF_RULE_UNSUPPORTED =
		0xfffd,		 /* an expression that the walk cannot use, or over PF_RULES_MAX */
	PF_RULE_SIGNAL = 0xfffc, /* rt_sigreturn stub: all registers are in the ucontext at rsp */
	/* rbp certainly points to a frame record (bodies of Go functions) */
	PF_RULE_FP = 0xfffb,
	/* native images: rbp points to no frame record, nothing else is known */
	PF_RULE_LOST = 0xfffa,
	/* code on the Go scheduler's stack, for which a goroutine waits (goroutine.h) */
	PF_RULE_GOROUTINE = 0xfff9,
	PF_RULE_SPECIAL_MIN = 0xfff0,
};

/* Where the canonical frame address is. Registers have their DWARF numbers (x86-64 psABI 3.6.2). */
enum pf_cfa {
	PF_CFA_RSP,	  /* rsp + cfa_offset */
	PF_CFA_RBP,	  /* rbp + cfa_offset */
	PF_CFA_REG,	  /* reg + cfa_offset; reg is known only in a leaf */
	PF_CFA_DEREF_RSP, /* *(rsp + cfa_offset) + extra */
	PF_CFA_DEREF_RBP, /* *(rbp + cfa_offset) + extra (stack realignment) */
	PF_CFA_DEREF_REG, /* *(reg + cfa_offset) + extra */
	PF_CFA_PLT,	  /* rsp + cfa_offset + ((rip & 15) >= extra ? 8 : 0) */
	_PF_CFA_MAX,
};
/* Where the caller's rbp is. */
enum pf_fp {
	PF_FP_SAME,   /* rbp unchanged */
	PF_FP_CFA,    /* at cfa + fp_offset */
	PF_FP_AT_RBP, /* at rbp + fp_offset (expression: realigned frames) */
	PF_FP_AT_RSP, /* at rsp + fp_offset */
	PF_FP_UNKNOWN,
	_PF_FP_MAX,
};
/* Where the return address is. */
enum pf_ra {
	PF_RA_CFA8, /* at cfa - 8 */
	PF_RA_CFA,  /* at cfa + extra */
	PF_RA_REG,  /* in reg (vfork): only in a leaf */
	_PF_RA_MAX,
};
struct pf_rule {
	uint8_t cfa, fp, ra; /* enum pf_cfa, pf_fp, pf_ra */
	uint8_t reg;
	int32_t cfa_offset, fp_offset, extra;
};

/* ---- in the kernel: all tables are in chunks ---- */
/*
 * Map `chunks`: an array of maps. Each inner map is an array of one value of PF_CHUNK_BYTES, made
 * when it is needed. A reference is chunk << 14 | byte offset / 4. Everything that a reference
 * points to is in that one chunk.
 */
#define PF_CHUNK_BYTES	     65536u
#define PF_CHUNKS_MAX	     4096u /* chunks of the tables of all files and processes */
#define PF_REF(chunk, bytes) ((uint32_t)(chunk) << 14 | (uint32_t)(bytes) >> 2)
#define PF_REF_CHUNK(ref)    ((ref) >> 14)
#define PF_REF_BYTES(ref)    (((ref)&0x3fff) << 2)

struct pf_page {
	uint32_t rows;	 /* reference to struct pf_row[n_rows] */
	uint32_t n_rows; /* 0: the whole page is a gap */
};

/* Map `unwind_files`: an array. Mappings name a file by its index here, the slot. */
#define PF_FILES_MAX	  8192u /* slots of all files */
#define PF_FILE_PAGES_MAX 8192u /* pages of a slot; a file with more has several slots */
enum pf_file_state {
	PF_FILE_PENDING = 0, /* the agent is making its table */
	PF_FILE_READY,
	/*
	 * The file has no table (refused, or over the budget): the walk follows frame pointers, and
	 * a stack that ends there says so.
	 */
	PF_FILE_NONE,
};
/* Slots that belong to no file. The mapping of a file without a table has one of these. */
enum {
	PF_SLOT_PENDING,
	PF_SLOT_NONE,
	PF_SLOT_EMPTY, /* a file without unwind information */
	PF_SLOT_FIRST
};
#define PF_SLOT_UNKNOWN                                                                            \
	0xffffu /* only in a walk: user space has given the kernel nothing about this file */
struct pf_file {
	uint32_t state;
	uint32_t first_page, n_pages; /* ELF virtual address >> PF_PAGE_BITS */
	uint32_t pages;		      /* reference to struct pf_page[n_pages] */
	uint32_t rules;		      /* reference to struct pf_rule[n_rules] */
	uint32_t n_rules;
};

/*
 * A tag stands for a file and its contents at one time. It is a hash of the inode (vma.h), and is
 * the same wherever the file is mapped. A frame carries the tag, so its names come from the file
 * that was mapped when the sample was taken.
 */
#define PF_TAG_NONE    0ull /* no file is mapped there */
#define PF_TAG_VDSO    1ull
#define PF_TAG_UNKNOWN 2ull  /* it is not known which file, if any; equals no file's tag */
#define PF_TAG_FIRST   16ull /* the tags of files begin here */

/*
 * Map `images`: hash, key: a file's tag. An entry has all that a walk needs to unwind the file,
 * wherever the file is mapped.
 */
#define PF_IMAGES_MAX 8192u
#define PF_PIECES_MAX 8
struct pf_piece {
	uint64_t start, end; /* file offsets */
	uint64_t delta;	     /* ELF virtual address - file offset, modulo 2^64 */
	uint32_t file;	     /* slot of unwind_files */
	/* not 0: code of a runtime; its frames are shown only if the process's list has it */
	uint32_t runtime;
};
struct pf_image {
	uint64_t tag; /* the key again: a slot that becomes free is used for another file at once */
	uint32_t n_pieces;
	/*
	 * not 0: a runtime, or Go. Stacks of a process with this file are whole only once user
	 * space has read the process.
	 */
	uint32_t needs_process;
	/*
	 * The file's machine code, cut where another slot's part begins, and where the code of a
	 * runtime begins and ends.
	 */
	struct pf_piece pieces[PF_PIECES_MAX];
};

/*
 * An executable mapping of a file, or code of a runtime, in the list of a process. The list is
 * sorted by start, without overlaps. Code that the list does not have is walked by frame pointers.
 * A mapping is cut where the code of a runtime begins and ends.
 */
struct pf_mapping {
	uint64_t start, end; /* addresses in the process */
	uint64_t bias;	     /* process address - ELF virtual address, modulo 2^64 */
	uint64_t load;	     /* process address - file offset, modulo 2^64 */
	uint64_t tag;	     /* PF_TAG_NONE: not of a file */
	uint16_t file;	     /* slot of unwind_files */
	/* 0: none; else 1 + index into pf_process.runtimes, perhaps | PF_MANAGED */
	uint16_t runtime;
	/*
	 * The kernel writes here the last mm->mm_lock_seq at which the mapping was still right.
	 * User space sets PF_UNVERIFIED at first.
	 */
	uint32_t verified;
};
#define PF_UNVERIFIED 0xffffffffu
/*
 * Code that was made at run time: the runtime unwinds and names it. Other code of a runtime is
 * unwound by the rules of its file.
 */
#define PF_MANAGED	     0x100u
#define PF_PART_MAPPINGS_MAX (PF_CHUNK_BYTES / 48) /* mappings of one part of a process */
#define PF_PARTS_MAX	     13

#define PF_PROCESSES_MAX 16384u
/*
 * Map `unwind_procs`: hash. For a forked child that the map does not have yet, the walk uses the
 * parent's entry.
 */
struct pf_process_key {
	uint64_t start_boottime_ns; /* start of the thread group leader; not rounded as in /proc */
	uint32_t tgid;		    /* in the agent's PID namespace */
	uint32_t exec_id;	    /* task->self_exec_id */
};
struct pf_part {
	uint64_t start;	   /* start of the part's first mapping */
	uint32_t mappings; /* reference to struct pf_mapping[n] */
	uint32_t n;
};
/* The data that a runtime's part of the walk (runtimes.h) needs about this process. */
struct pf_runtime {
	uint32_t kind; /* enum pf_runtime_kind */
	uint32_t data; /* reference to struct pf_<name>, at a multiple of 8 */
};
#define PF_RUNTIMES_MAX 4 /* limit for the runtimes of one process */

/*
 * The type of a frame that stands for frames which a runtime could not show. Its words: enum
 * pf_trouble, and an address or 0.
 */
#define PF_TYPE_TROUBLE 0xff
/*
 * The type of the first frame of an allocation. Its words: the class or type of the allocated
 * object, which the runtime can name, and 0.
 */
#define PF_TYPE_OBJECT 0xfe
/* X(name, text of the marker "[python: text]") */
#define PF_TROUBLES(X)                                                                             \
	X(READ, "not_in_memory")     /* a page is not in memory, until user space reads it */      \
	X(THREAD, "no_thread_state") /* the runtime does not know the thread (yet) */              \
	X(DAMAGED, "inconsistent") /* read during a change, or not in the expected form */         \
	X(LONG, "too_long")	   /* a list or search over its limit */                           \
	X(CODE, "unknown_code")	   /* generated code of which the walk knows nothing */
enum pf_trouble {
#define X(name, text) PF_TROUBLE_##name,
	PF_TROUBLES(X)
#undef X
		_PF_TROUBLE_MAX,
};

struct pf_process {
	/* mm->exec_vm when the mappings were read. If it differs, they must be read again. */
	uint64_t exec_pages;
	uint32_t n_parts;
	uint32_t n_runtimes;
	struct pf_part parts[PF_PARTS_MAX];
	struct pf_runtime runtimes[PF_RUNTIMES_MAX];
};

_Static_assert(sizeof(struct pf_row) == 4, "tables");
_Static_assert(sizeof(struct pf_rule) == 16, "tables");
_Static_assert(sizeof(struct pf_page) == 8, "tables");
_Static_assert(sizeof(struct pf_file) == 24, "tables");
_Static_assert(sizeof(struct pf_mapping) == 48, "tables");
_Static_assert(sizeof(struct pf_piece) == 32, "tables");
_Static_assert(PF_FILES_MAX <= PF_SLOT_UNKNOWN, "tables");
_Static_assert(sizeof(struct pf_process_key) == 16, "tables");
_Static_assert(sizeof(struct pf_process) == 256, "tables");
