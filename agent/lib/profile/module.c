/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kind of code a file holds, by its path. Only this file decides it for frames of native code.
 */
#include "lib/profile/profile.h"

#include <limits.h>

#define HASH_DIGITS 8 /* number of digits of the file's SHA-256 in a name that auditwheel makes */

/*
 * The libraries of CUDA: the driver, the CUDA toolkit, and what NVIDIA builds on it for deep
 * learning, by the names of the files in NVIDIA's packages. '*': any name that begins so.
 */
static const char *const cuda_libraries[] = {
	/* the driver */
	"libcuda",
	"libcudadebugger",
	"libnvidia-ptxjitcompiler",
	"libnvidia-nvvm",
	/* runtime, compilers, tools */
	"libcudart",
	"libnvrtc",
	"libnvrtc-builtins",
	"libnvJitLink",
	"libnvvm",
	"libnvfatbin",
	"libcupti",
	"libnvperf*",
	"libpcsamplingutil",
	"libcuinj64",
	"libaccinj64",
	"libnvToolsExt",
	/* mathematics */
	"libcublas",
	"libcublasLt",
	"libnvblas",
	"libcufft",
	"libcufftw",
	"libcurand",
	"libcusolver",
	"libcusolverMg",
	"libcusparse",
	"libcusparseLt",
	"libcutensor",
	"libcutensorMg",
	"libcudss",
	"libnpp*",
	"libnvjpeg",
	/* deep learning, communication, files */
	"libcudnn*",
	"libnccl",
	"libnvshmem*",
	"libcufile*",
};

/*
 * Skips "-" and a hash, if s begins with them. Wheels of Python contain copies of libraries with a
 * hash in the name: "libcudart-d0da41ae.so.11.0".
 */
static const char *behind_hash(const char *s)
{
	bool hash = *s == '-' && strspn(s + 1, "0123456789abcdef") == HASH_DIGITS;

	return hash ? s + 1 + HASH_DIGITS : s;
}

static bool has_name(const char *file, const char *name)
{
	for (; *name && *name == *file; name++)
		file++;
	return *name == '*' || (!*name && str_has_prefix(behind_hash(file), ".so"));
}

enum frame_kind profile_module_kind(const char *path)
{
	size_t n = strnlen(path, PATH_MAX);
	const char *slash = memrchr(path, '/', n), *file = slash ? slash + 1 : path;

	if (!memmem(path, n, ".so", 3))
		return FRAME_APP;
	for (size_t i = 0; i < ARRAY_SIZE(cuda_libraries); i++)
		if (has_name(file, cuda_libraries[i]))
			return FRAME_CUDA;
	return FRAME_LIBRARY;
}
