/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: memory of a context that has a handle instead of an address. */
#include "internal.h"

/* Returns the bytes of one element of this format; 0: the format is not known. */
static uint64_t format_bytes(int format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static uint64_t at_least_1(uint64_t n)
{
	return n ? n : 1;
}

/*
 * Returns the number of elements of a level of a mipmapped array. Each level is half as large as
 * the one before in each direction; the number of layers is the same.
 */
static uint64_t level_elements(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
	bool layers = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	return at_least_1(d->Width >> level) * at_least_1(d->Height >> level) *
	       at_least_1(layers ? d->Depth : d->Depth >> level);
}

static CUresult create(enum kind kind, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels,
		       uint64_t *ret_handle)
{
	LOCKED;
	uint64_t elements = 0, element = format_bytes(d->Format) * d->NumChannels;
	struct allocation *a;
	CUresult r = memory_call_begin();

	if (r)
		return r;
	if (!d->Width || !levels || levels > 32)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < levels; i++)
		elements += level_elements(d, i);
	r = allocation_add(kind, context_current()->device, elements * element, 0, &a);
	if (!r)
		*ret_handle = a->key;
	return r;
}

static CUresult destroy(enum kind kind, const void *handle)
{
	LOCKED;
	struct allocation *a;
	CUresult r = memory_call_begin();

	if (r)
		return r;
	a = allocation_find((uintptr_t)handle);
	if (!a || a->kind != kind)
		return CUDA_ERROR_INVALID_HANDLE;
	allocation_remove(a);
	return CUDA_SUCCESS;
}

static CUresult create_array(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	uint64_t handle;
	CUresult r = create(ARRAY, d, 1, &handle);

	if (!r)
		*array = (CUarray)(uintptr_t)handle;
	return r;
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
	return create_array(array, &(CUDA_ARRAY3D_DESCRIPTOR){desc->Width, desc->Height, 0,
							      desc->Format, desc->NumChannels, 0});
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	return create_array(array, &(CUDA_ARRAY3D_DESCRIPTOR){desc->Width, desc->Height, 0,
							      desc->Format, desc->NumChannels, 0});
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
	return create_array(array, &(CUDA_ARRAY3D_DESCRIPTOR){desc->Width, desc->Height,
							      desc->Depth, desc->Format,
							      desc->NumChannels, desc->Flags});
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	return create_array(array, desc);
}

CUresult cuArrayDestroy(CUarray array)
{
	return destroy(ARRAY, array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				unsigned int levels)
{
	uint64_t handle;
	CUresult r = create(MIPMAPPED, desc, levels, &handle);

	if (!r)
		*array = (CUmipmappedArray)(uintptr_t)handle;
	return r;
}

/*
 * Returns a level. It is a part of the mipmapped array, not memory of its own, so all levels have
 * the same handle.
 */
CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array, unsigned int n)
{
	LOCKED;
	const struct allocation *a = allocation_find((uintptr_t)array);

	(void)n;
	if (!a || a->kind != MIPMAPPED)
		return CUDA_ERROR_INVALID_HANDLE;
	*level = (CUarray)array;
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return destroy(MIPMAPPED, array);
}
