/* SPDX-License-Identifier: Apache-2.0 */
/* A program that multiplies matrices with cuBLAS. */
#include <cublas_v2.h>
#include <cuda.h>

#include "gpu_none.h"

CALL(of_blas)
{
	cublasHandle_t blas = NULL;
	double *a = NULL, one = 1;

	ret[0] = cublasCreate(&blas);
	ret[1] = cudaMalloc((void **)&a, 64 * sizeof(*a));
	ret[2] = cublasDgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a, 8, a, 8, &one, a, 8);
	ret[3] = cublasDestroy(blas);
}

static const struct call calls[] = {{"of_blas", of_blas}};

int main(int argc, char **argv)
{
	run(argc, argv, calls, COUNT(calls));
}
