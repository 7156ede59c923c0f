/* Element-wise difference of two vectors with a tail: 1000 elements, 4 blocks of 256. */
extern "C" __global__ void __launch_bounds__(256) kiln_test_0(const float *__restrict__ in0, const float *__restrict__ in1, float *__restrict__ out0)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < 1000) {
        out0[i] = in0[i] - in1[i];
    }
}
