/* A product of two matrices by threads, which stays as it is: what the time of assembling other kernels is told in (tests/golden/gpu_assemble.c). */
#define N 1024
extern "C" __global__ void __launch_bounds__(256) reference(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c)
{
    __shared__ float sa[16][64], sb[16][64];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sum[4][4] = {{0}};
    for (int k = 0; k < N; k += 16) {
        __syncthreads();
        for (int i = threadIdx.x; i < 16 * 64; i += 256) {
            sa[i % 16][i / 16] = a[(row + i / 16) * N + k + i % 16];
            sb[i / 64][i % 64] = b[(k + i / 64) * N + column + i % 64];
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < 16; kk++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += sa[kk][4 * y + i] * sb[kk][4 * x + j];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[(row + 4 * y + i) * N + column + 4 * x + j] = sum[i][j];
}
