/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * memory_site: applies struct pf_site to the registers: finds the size or address of the memory at
 * a hit of an allocator's uprobe.
 */
#pragma once

#include "capture.h"

static __always_inline struct pf_site pf_site_of(struct pt_regs *ctx)
{
	uint64_t cookie = bpf_get_attach_cookie(ctx);
	struct pf_site site;

	__builtin_memcpy(&site, &cookie, sizeof(site));
	return site;
}

/*
 * Reads all registers before it chooses one. Otherwise clang makes a single read at a computed
 * offset, which the verifier refuses.
 */
static __noinline uint64_t pf_mem_other_arg(struct pt_regs *ctx, uint32_t n, bool go)
{
	uint64_t di = PF_CONTEXT_REG(ctx, rdi), si = PF_CONTEXT_REG(ctx, rsi);
	uint64_t dx = PF_CONTEXT_REG(ctx, rdx), cx = PF_CONTEXT_REG(ctx, rcx);
	uint64_t r8 = PF_CONTEXT_REG(ctx, r8), r9 = PF_CONTEXT_REG(ctx, r9);
	uint64_t ax = PF_CONTEXT_REG(ctx, rax), bx = PF_CONTEXT_REG(ctx, rbx);

	if (n == 1)
		return go ? ax : di;
	if (n == 2)
		return go ? bx : si;
	if (n == 3)
		return go ? cx : dx;
	if (n == 4)
		return go ? di : cx;
	if (n == 5)
		return go ? si : r8;
	if (n == 6)
		return go ? r8 : r9;
	return 0;
}

/* Returns argument n of a call, counted from 1, by the registers of C or of Go. */
static __always_inline uint64_t pf_mem_arg(struct pt_regs *ctx, uint32_t n, bool go)
{
	return n == 1 && !go ? PF_CONTEXT_REG(ctx, rdi) : pf_mem_other_arg(ctx, n, go);
}

/*
 * Returns a register, counted from 1 as in PF_SITE_INSIDE. For 0 (no register) returns 1, as a
 * factor.
 */
static __noinline uint64_t pf_mem_register(struct pt_regs *ctx, uint32_t n)
{
#define READ(name) uint64_t name = PF_CONTEXT_REG(ctx, name);
	READ(rax)
	READ(rcx) READ(rdx) READ(rbx) READ(rbp) READ(rsi) READ(rdi) READ(r8) READ(r9) READ(r10)
		READ(r11) READ(r12) READ(r13) READ(r14) READ(r15)
#undef READ
			switch (n)
	{
	case 1:
		return rax;
	case 2:
		return rcx;
	case 3:
		return rdx;
	case 4:
		return rbx;
	case 6:
		return rbp;
	case 7:
		return rsi;
	case 8:
		return rdi;
	case 9:
		return r8;
	case 10:
		return r9;
	case 11:
		return r10;
	case 12:
		return r11;
	case 13:
		return r12;
	case 14:
		return r13;
	case 15:
		return r14;
	case 16:
		return r15;
	}
	return 1;
}

/* Returns size * count; PF_MEM_SIZE_MAX: so much that the call cannot succeed. */
static __always_inline uint64_t pf_mem_size(struct pt_regs *ctx, struct pf_site site)
{
	bool go = site.kind == PF_SITE_GO;
	uint64_t size, count = 1;

	if (site.kind == PF_SITE_INSIDE) {
		size = pf_mem_register(ctx, site.size_arg);
		count = pf_mem_register(ctx, site.count_arg);
		if (size >> 16 || count >> 16) /* above max_bytes, which has 16 bits */
			return PF_MEM_SIZE_MAX;
		return size * count * PF_SITE_FACTOR(site);
	}
	size = pf_mem_arg(ctx, site.size_arg, go);
	if (site.count_arg)
		count = pf_mem_arg(ctx, site.count_arg, go);
	if (!size || !count)
		return 0;
	if (size >= PF_MEM_SIZE_MAX || count >= PF_MEM_SIZE_MAX)
		return PF_MEM_SIZE_MAX;
	/*
	 * If one factor is below 2^17, the product fits into 64 bits, because the other one is
	 * below 2^47. If both are at least 2^17, and one is at least 2^31, the product is at least
	 * 2^48.
	 */
	if (size >> 17 && count >> 17 && (size >> 31 || count >> 31))
		return PF_MEM_SIZE_MAX;
	size *= count;
	return size < PF_MEM_SIZE_MAX ? size : PF_MEM_SIZE_MAX;
}

/* Whether this call leads to a call of another probed function, which counts the memory. */
static __always_inline bool pf_mem_is_elsewhere(struct pt_regs *ctx, struct pf_site site)
{
	if (site.kind == PF_SITE_ALLOC && site.flags & PF_SITE_SMALL_ALIGN_IS_ALLOC)
		return pf_mem_arg(ctx, 1, false) <= PF_MEM_ALIGN;
	if (site.kind == PF_SITE_REALLOC && site.flags & PF_SITE_NULL_IS_ALLOC)
		return !pf_mem_arg(ctx, site.ptr_arg, false);
	return false;
}

/* Whether mem-alloc counts this call's memory at another call. */
static __always_inline bool pf_mem_is_told(struct pf_site site)
{
	return site.kind == PF_SITE_REALLOC && site.flags & PF_SITE_NEW_IS_ALLOC;
}
