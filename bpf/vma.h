/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vma: finds the mapping at an address of a process, in the kernel's own tree of mappings (a maple
 * tree, since 6.1). The search takes no lock, because an interrupt cannot. So the kernel may free a
 * node or a mapping during the search. It does no harm to read freed memory, because
 * pf_look_at_vma() accepts a mapping only if it belongs to the process and contains the address.
 */
#pragma once

#include "walk.h"

/* Layout and encoding: include/linux/maple_tree.h, the same from 6.1 to 7.2. */
#define PF_NODE_WORDS  32 /* size of a node: 256 bytes, to which nodes are aligned */
#define PF_NODE_MASK   0xffull
#define PF_NODE_TYPE   0xf /* bits 3 to 6 of a pointer to a node */
#define PF_NODE_LEAF   1
#define PF_NODE_ARANGE 3  /* a node that also has sizes of gaps, so it has fewer slots */
#define PF_NODE_ROOT   2  /* the two lowest bits of a tree's root, if the root is a node */
#define PF_TREE_LEVELS 12 /* a tree of 10,000,000 mappings has 9 */

#define PF_VM_EXEC  0x4
#define PF_BELOW_4G (1ull << 32)
#define PF_SB_KERNMOUNT                                                                            \
	(1ul << 22) /* in super_block.s_flags: only the kernel uses the mount, as for memfd */
#define PF_CTIME_MASK 0x3fffffff /* since 6.13, a higher bit has a flag that stat() changes */

/* Whether this kernel counts changes of mappings in a way that pf_mm_sequence() can use. */
static __always_inline bool pf_mm_counts(void)
{
	struct mm_struct___counted *counted = NULL;
	struct mm_struct___numbered *numbered = NULL;
	struct mm_struct *mm = NULL;

	return bpf_core_field_exists(counted->mm_lock_seq.sequence) ||
	       (bpf_core_field_exists(numbered->mm_lock_seq) &&
		bpf_core_field_exists(mm->mmap_lock.count));
}

/*
 * Whether the mappings of a process are being changed (RWSEM_WRITER_LOCKED). If the lock has no
 * count (PREEMPT_RT), this cannot be seen, and the function returns false.
 */
static __always_inline bool pf_mm_is_locked(struct mm_struct *mm)
{
	long lock = 0;

	if (!bpf_core_field_exists(mm->mmap_lock.count))
		return false;
	return bpf_core_read(&lock, sizeof(lock), &mm->mmap_lock.count) || lock & 1;
}

static __always_inline uint64_t pf_mm_read(const void *at)
{
	uint64_t word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), at);
	return word;
}

/*
 * Returns a number that differs after each change of a process's mappings. PF_UNVERIFIED: the
 * kernel has no such number (before 6.4), or a change is going on.
 */
static __always_inline uint32_t pf_mm_sequence(struct mm_struct *mm)
{
	struct mm_struct___counted *counted = (void *)mm;
	struct mm_struct___numbered *numbered = (void *)mm;
	uint32_t n = PF_UNVERIFIED;

	/* In 6.14 and 6.12.y, mm_lock_seq is a seqcount_t: odd while a change is going on. */
	if (bpf_core_field_exists(counted->mm_lock_seq.sequence)) {
		if (bpf_core_read(&n, sizeof(n), &counted->mm_lock_seq.sequence) || n & 1)
			return PF_UNVERIFIED;
		return n;
	}
	/* If the lock has no count (PREEMPT_RT), a change going on is not visible. */
	if (!bpf_core_field_exists(numbered->mm_lock_seq) ||
	    !bpf_core_field_exists(mm->mmap_lock.count))
		return PF_UNVERIFIED;
	/* In other kernels, it is an int that is raised at the end of each change. */
	if (pf_mm_is_locked(mm) || bpf_core_read(&n, sizeof(n), &numbered->mm_lock_seq))
		return PF_UNVERIFIED;
	return n;
}

/*
 * Goes one level down in the tree, from the node l->at towards the address. Returns 0: l->at is the
 * next node; 1: l->at should be the mapping; -1: the node cannot be read.
 */
PF_ONCE int pf_tree_level(struct pf_vma *l)
{
	uint64_t at, address, pivot;
	uint32_t type, n, i;

	if (!l)
		return -1;
	at = l->at;
	address = l->address;
	if (at < 4096)
		return -1;
	type = at >> 3 & PF_NODE_TYPE;
	if (bpf_probe_read_kernel(l->node, sizeof(l->node), (const void *)(at & ~PF_NODE_MASK)))
		return -1;
	/*
	 * Word 0 of a node is its parent. Then come the last addresses of all slots except the last
	 * slot, then the slots.
	 */
	n = type == PF_NODE_ARANGE ? 9 : 15;
	for (i = 0; i < 15; i++) {
		pivot = l->node[1 + i];
		if (i >= n || address <= pivot || (i && !pivot))
			break;
	}
	l->at = l->node[(n + 1 + i) % PF_NODE_WORDS];
	return type == PF_NODE_LEAF;
}

/* ---- which file ---- */

static __always_inline uint64_t pf_ctime_of(struct inode *inode)
{
	struct inode___timespec *timespec = (void *)inode;
	struct inode___old *old = (void *)inode;
	uint64_t seconds = 0;
	uint32_t ns = 0;

	if (bpf_core_field_exists(inode->i_ctime_sec)) {
		bpf_core_read(&seconds, sizeof(seconds), &inode->i_ctime_sec);
		bpf_core_read(&ns, sizeof(ns), &inode->i_ctime_nsec);
	} else if (bpf_core_field_exists(timespec->__i_ctime)) {
		bpf_core_read(&seconds, sizeof(seconds), &timespec->__i_ctime.tv_sec);
		bpf_core_read(&ns, sizeof(ns), &timespec->__i_ctime.tv_nsec);
	} else {
		bpf_core_read(&seconds, sizeof(seconds), &old->i_ctime.tv_sec);
		bpf_core_read(&ns, sizeof(ns), &old->i_ctime.tv_nsec);
	}
	return seconds << 30 | (ns & PF_CTIME_MASK);
}

/*
 * Returns the tag of a file: a hash that stands for the file and its contents. A change of the
 * bytes changes the ctime, and if an inode number is used again, the inode's generation differs.
 * The tag of a file in memory (memfd) leaves out the ctime: most changes of its bytes do not change
 * the ctime, and other changes, such as growth, change the ctime but no code. Instead, the agent
 * compares the code of such files (stack/code_compare.c). Returns 0 if the inode could not be read.
 */
static __noinline uint64_t pf_tag_of(struct file *file)
{
	struct inode *inode = PF_POINTER(file, f_inode);
	struct super_block *sb = PF_POINTER(inode, i_sb);
	uint32_t device = 0, generation = 0;
	uint64_t number = 0, flags = 0, hash;

	if (!inode || !sb || bpf_core_read(&number, sizeof(number), &inode->i_ino))
		return 0;
	bpf_core_read(&device, sizeof(device), &sb->s_dev);
	bpf_core_read(&generation, sizeof(generation), &inode->i_generation);
	hash = pf_config.tag_seed;
	hash = pf_hash_add(hash, (uint64_t)device << 32 | generation);
	hash = pf_hash_add(hash, number);
	bpf_core_read(&flags, sizeof(flags), &sb->s_flags);
	hash = pf_hash_add(hash, flags & PF_SB_KERNMOUNT ? 0 : pf_ctime_of(inode));
	hash = pf_hash_add(hash, pf_config.tag_seed >> 32);
	return hash < PF_TAG_FIRST ? PF_TAG_FIRST : hash;
}

/* ---- the mapping ---- */

/*
 * Checks the mapping at l->at and fills l with it. Returns 0, or -1 if the mapping does not belong
 * to this process or does not contain the address.
 */
static __noinline int pf_look_at_vma(struct pf_vma *l)
{
	struct vm_area_struct *vma = (void *)l->at;
	struct mm_struct *mm = (void *)l->mm;
	struct file *file;
	uint64_t offset;

	l->start = pf_mm_read(&vma->vm_start);
	l->end = pf_mm_read(&vma->vm_end);
	if (pf_mm_read(&vma->vm_mm) != l->mm || l->address < l->start || l->address >= l->end)
		return -1;
	l->runs = (pf_mm_read(&vma->vm_flags) & PF_VM_EXEC) != 0;
	file = (void *)pf_mm_read(&vma->vm_file);
	offset = pf_mm_read(&vma->vm_pgoff) << 12;
	l->load = l->start - offset;
	l->tag = 0;
	if (file) {
		l->tag = pf_tag_of(file);
		return l->tag && pf_mm_read(&vma->vm_file) == (uint64_t)file ? 0 : -1;
	}
	if (l->start >= PF_BELOW_4G && pf_mm_read(&mm->context.vdso) == l->start) {
		l->tag = PF_TAG_VDSO;
		l->load = l->start;
	}
	return 0;
}

/*
 * Finds the mapping at l->address of l->mm, and sets start, end, load, tag and runs of l.
 * l->sequence: the result is valid as long as pf_mm_sequence() returns this number; PF_UNVERIFIED:
 * it is valid only at this moment.
 */
PF_ONCE int pf_find_vma(struct pf_vma *l)
{
	struct mm_struct *mm;
	int found = 0;

	if (!l)
		return PF_VMA_NOTHING;
	mm = (void *)l->mm;
	l->sequence = pf_mm_sequence(mm);
	l->at = 0;
	bpf_core_read(&l->at, sizeof(l->at), &mm->mm_mt.ma_root);
	if ((l->at & 3) != PF_NODE_ROOT) /* a process with a single mapping runs no code */
		found = -1;
	for (uint32_t i = 0; i < PF_TREE_LEVELS && !found; i++)
		found = pf_tree_level(l);
	if (found != 1 || l->at < 4096 || pf_look_at_vma(l))
		found = -1;
	if (pf_mm_sequence(mm) != l->sequence)
		l->sequence = PF_UNVERIFIED;
	if (found == 1)
		return PF_VMA_FOUND;
	/*
	 * If the kernel does not count changes (6.1), its lock still shows whether the tree is
	 * being changed.
	 */
	if (pf_mm_counts() ? l->sequence == PF_UNVERIFIED : pf_mm_is_locked(mm))
		return PF_VMA_UNSURE;
	return PF_VMA_NOTHING;
}
