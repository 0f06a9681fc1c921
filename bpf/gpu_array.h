/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gpu_array: how many bytes the elements of a CUDA array have, by its descriptor (cuda.h,
 * CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR). The driver pads rows and levels, so the
 * memory of an array may be larger.
 */
#pragma once

#include "memory_site.h"

/* CUDA_ARRAY3D_... of cuda.h */
#define PF_ARRAY_LAYERED  0x01	       /* the depth is a number of layers */
#define PF_ARRAY_CUBEMAP  0x04	       /* the depth is a number of faces */
#define PF_ARRAY_SPARSE	  0x40	       /* the array has no memory of its own */
/* the array has no memory until cuMemMapArrayAsync gives it some */
#define PF_ARRAY_DEFERRED 0x80
#define PF_ARRAY_MAX	  (1ull << 20) /* elements of one dimension; CUDA's maxima are smaller */

struct pf_gpu_array {
	uint64_t width, height, depth;
	uint32_t format, channels, flags;
};

/*
 * Bits of an element, by enum CUarray_format. For a format below 0x40, these are the bits of one
 * channel, of which the element has NumChannels. For the other formats, they are the bits of all
 * channels together; in subsampled and compressed formats, the average per element. 0: podflame
 * does not know the format.
 */
#define PF_BITS(bits, from, to) [from... to] = (bits)
static const uint8_t pf_gpu_format_bits[256] = {
	PF_BITS(8, 0x01, 0x01),	 PF_BITS(16, 0x02, 0x02), /* UNSIGNED_INT8, INT16, */
	PF_BITS(32, 0x03, 0x03),			  /* INT32 */
	PF_BITS(8, 0x08, 0x08),	 PF_BITS(16, 0x09, 0x09), /* SIGNED_INT8, INT16, */
	PF_BITS(32, 0x0a, 0x0a),			  /* INT32 */
	PF_BITS(16, 0x10, 0x10), PF_BITS(32, 0x20, 0x20), /* HALF, FLOAT */
	PF_BITS(32, 0x50, 0x50),			  /* UNORM_INT_101010_2 */
	PF_BITS(16, 0x51, 0x51), PF_BITS(24, 0x52, 0x52), /* UINT8_PACKED_422, _444 */
	PF_BITS(12, 0x53, 0x53), PF_BITS(24, 0x54, 0x54), /* UINT8, UINT16 _SEMIPLANAR_420, */
	PF_BITS(16, 0x55, 0x55), PF_BITS(32, 0x56, 0x56), /* _422, */
	PF_BITS(24, 0x57, 0x57), PF_BITS(48, 0x58, 0x58), /* _444 */
	PF_BITS(12, 0x59, 0x59), PF_BITS(24, 0x5a, 0x5a), /* UINT8, UINT16 _PLANAR_420, */
	PF_BITS(16, 0x5b, 0x5b), PF_BITS(32, 0x5c, 0x5c), /* _422, */
	PF_BITS(24, 0x5d, 0x5d), PF_BITS(48, 0x5e, 0x5e), /* _444 */
	PF_BITS(4, 0x91, 0x92),	 PF_BITS(8, 0x93, 0x96),  /* BC1; BC2, BC3 */
	PF_BITS(4, 0x97, 0x98),	 PF_BITS(8, 0x99, 0x9e),  /* BC4; BC5, BC6H, BC7 */
	PF_BITS(24, 0x9f, 0x9f), PF_BITS(24, 0xa1, 0xa1), /* P010, P016 */
	PF_BITS(16, 0xa2, 0xa2), PF_BITS(32, 0xa3, 0xa4), /* NV16; P210, P216 */
	PF_BITS(16, 0xa5, 0xa5), PF_BITS(32, 0xa6, 0xa7), /* YUY2; Y210, Y216 */
	PF_BITS(32, 0xa8, 0xa9),			  /* AYUV, Y410 */
	PF_BITS(12, 0xb0, 0xb0), PF_BITS(64, 0xb1, 0xb1), /* NV12, Y416 */
	PF_BITS(24, 0xb2, 0xb2), PF_BITS(48, 0xb3, 0xb3), /* Y444_PLANAR8, 10 */
	PF_BITS(24, 0xb4, 0xb4), PF_BITS(48, 0xb5, 0xb5), /* YUV444_8bit, 16bit _SemiPlanar */
	PF_BITS(8, 0xc0, 0xc0),	 PF_BITS(16, 0xc1, 0xc1), /* UNORM_INT8X1, X2, */
	PF_BITS(32, 0xc2, 0xc2),			  /* X4 */
	PF_BITS(16, 0xc3, 0xc3), PF_BITS(32, 0xc4, 0xc4), /* UNORM_INT16X1, X2, */
	PF_BITS(64, 0xc5, 0xc5),			  /* X4 */
	PF_BITS(8, 0xc6, 0xc6),	 PF_BITS(16, 0xc7, 0xc7), /* SNORM_INT8X1, X2, */
	PF_BITS(32, 0xc8, 0xc8),			  /* X4 */
	PF_BITS(16, 0xc9, 0xc9), PF_BITS(32, 0xca, 0xca), /* SNORM_INT16X1, X2, */
	PF_BITS(64, 0xcb, 0xcb),			  /* X4 */
};

/* Reads a descriptor, whose sizes have 32 or 64 bits. False: it cannot be read. */
static __noinline bool pf_gpu_array_read(uint64_t at, uint32_t flags, struct pf_gpu_array *a)
{
	uint32_t sizes = flags & PF_GPU_3D ? 3 : 2, narrow[6] = {};
	uint64_t wide[5] = {};

	if (!a || !at)
		return false;
	if (flags & PF_GPU_32) {
		if (!pf_read(narrow, (sizes == 3 ? 6 : 4) * 4, at))
			return false;
		a->width = narrow[0];
		a->height = narrow[1];
		a->depth = sizes == 3 ? narrow[2] : 0;
		a->format = sizes == 3 ? narrow[3] : narrow[2];
		a->channels = sizes == 3 ? narrow[4] : narrow[3];
		a->flags = sizes == 3 ? narrow[5] : 0;
		return true;
	}
	if (!pf_read(wide, sizes == 3 ? 36 : 24, at))
		return false;
	a->width = wide[0];
	a->height = wide[1];
	a->depth = sizes == 3 ? wide[2] : 0;
	a->format = sizes == 3 ? wide[3] : wide[2];
	a->channels = (sizes == 3 ? wide[3] : wide[2]) >> 32;
	a->flags = sizes == 3 ? wide[4] : 0;
	return true;
}

static __always_inline uint64_t pf_gpu_at_least_1(uint64_t n)
{
	return n ? n : 1;
}

/* Returns the bytes of one mipmap level. Level 0 has the size of the array itself. */
static __noinline uint64_t pf_gpu_level_bytes(const struct pf_gpu_array *a, uint32_t level,
					      uint64_t bits)
{
	uint64_t elements, depth;

	if (!a)
		return 0;
	level &= 31;
	depth = a->flags & (PF_ARRAY_LAYERED | PF_ARRAY_CUBEMAP) ? a->depth : a->depth >> level;
	elements = pf_gpu_at_least_1(a->width >> level) * pf_gpu_at_least_1(a->height >> level) *
		   pf_gpu_at_least_1(depth);
	return elements < PF_MEM_SIZE_MAX ? (elements * bits + 7) / 8 : 0;
}

/*
 * Returns how many mipmap levels the array gets if the program asks for `asked`. CUDA makes at
 * least 1, and at most the maximum for the array's size. `asked` is an unsigned int of the call,
 * but has 64 bits here: with 32 bits, the verifier of Linux 6.1 has too many states to check.
 */
static __noinline uint32_t pf_gpu_levels(const struct pf_gpu_array *a, uint64_t asked)
{
	uint64_t longest;
	uint32_t n = 1;

	if (!a)
		return 1;
	longest = a->width > a->height ? a->width : a->height;
	if (!(a->flags & (PF_ARRAY_LAYERED | PF_ARRAY_CUBEMAP)) && a->depth > longest)
		longest = a->depth;
	for (int i = 0; i < 20 && longest > 1; i++, longest >>= 1)
		n++;
	asked &= 0xffffffff;
	return asked < n ? asked + !asked : n;
}

/*
 * Returns the bytes of an array. 0: the array has no memory of its own, or the call cannot succeed.
 * PF_GPU_BYTES_UNKNOWN: podflame does not know the format, or the descriptor's page is not in
 * memory, so the program cannot read it.
 */
#define PF_GPU_BYTES_UNKNOWN (~0ull)
static __noinline uint64_t pf_gpu_array_bytes(uint64_t descriptor, uint64_t levels, uint32_t flags)
{
	struct pf_gpu_array a = {};
	uint64_t bytes = 0, bits;
	uint32_t n;

	if (!pf_gpu_array_read(descriptor, flags, &a))
		return PF_GPU_BYTES_UNKNOWN;
	if (a.width > PF_ARRAY_MAX || a.height > PF_ARRAY_MAX || a.depth > PF_ARRAY_MAX ||
	    a.flags & (PF_ARRAY_SPARSE | PF_ARRAY_DEFERRED))
		return 0;
	bits = pf_gpu_format_bits[a.format & 255];
	if (!bits)
		return PF_GPU_BYTES_UNKNOWN;
	if (a.format < 0x40)
		bits *= a.channels & 7;
	n = flags & PF_GPU_MIPMAP ? pf_gpu_levels(&a, levels) : 1;
	for (uint32_t i = 0; i < 21 && i < n; i++)
		bytes += pf_gpu_level_bytes(&a, i, bits);
	return bytes;
}
