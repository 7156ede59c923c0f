/* Tiled product of 40x36 and 36x48 with 16x16 tiles in shared memory: 3x3 blocks of 256 threads, ragged in M and K. */
extern "C" __global__ void __launch_bounds__(256) kiln_test_0(const float *__restrict__ in0, const float *__restrict__ in1, float *__restrict__ out0)
{
    __shared__ __align__(16) float a[16 * 16];
    __shared__ __align__(16) float b[16 * 16];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int m = blockIdx.x / 3 * 16 + ty, n = blockIdx.x % 3 * 16 + tx;
    float sum = 0.0f;
    for (int k = 0; k < 36; k += 16) {
        a[ty * 16 + tx] = m < 40 && k + tx < 36 ? in0[m * 36 + k + tx] : 0.0f;
        b[ty * 16 + tx] = k + ty < 36 ? in1[(k + ty) * 48 + n] : 0.0f;
        __syncthreads(); /* filled */
        for (int r = 0; r < 16; r++) {
            sum += a[ty * 16 + r] * b[r * 16 + tx];
        }
        __syncthreads(); /* read */
    }
    if (m < 40) {
        out0[m * 48 + n] = sum;
    }
}
