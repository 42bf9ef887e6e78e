/* A library of operators for L0_custom_ops, in place of the one that the build of ONNX Runtime
 * makes for its own tests: CustomOpOne of the domain test.customop adds two tensors of floats. */
#include <onnxruntime/onnxruntime_c_api.h>

static const OrtApi *ort;

static void destroy_kernel(void *kernel) {
    (void)kernel;
}

static OrtStatus *read_input(OrtKernelContext *context, size_t i, const float **numbers, size_t *n,
                             int64_t dims[8], size_t *rank) {
    const OrtValue *value;
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtStatus *status = ort->KernelContext_GetInput(context, i, &value);
    if (!status) {
        status = ort->GetTensorTypeAndShape(value, &info);
    }
    if (!status) {
        status = ort->GetTensorShapeElementCount(info, n);
    }
    if (!status) {
        status = ort->GetDimensionsCount(info, rank);
    }
    if (!status) {
        status = *rank <= 8 ? ort->GetDimensions(info, dims, *rank)
                            : ort->CreateStatus(ORT_INVALID_ARGUMENT, "rank over 8");
    }
    if (!status) {
        status = ort->GetTensorMutableData((OrtValue *)value, (void **)numbers);
    }
    ort->ReleaseTensorTypeAndShapeInfo(info);
    return status;
}

static OrtStatus *add(void *kernel, OrtKernelContext *context) {
    (void)kernel;
    const float *inputs[2];
    float *sum;
    int64_t dims[8];
    size_t n[2], rank;
    OrtValue *output;
    for (size_t i = 0; i < 2; i++) {
        OrtStatus *status = read_input(context, i, &inputs[i], &n[i], dims, &rank);
        if (status) {
            return status;
        }
    }
    if (n[0] != n[1]) {
        return ort->CreateStatus(ORT_INVALID_ARGUMENT, "inputs of unequal sizes");
    }
    OrtStatus *status = ort->KernelContext_GetOutput(context, 0, dims, rank, &output);
    if (!status) {
        status = ort->GetTensorMutableData(output, (void **)&sum);
    }
    for (size_t i = 0; !status && i < n[0]; i++) {
        sum[i] = inputs[0][i] + inputs[1][i];
    }
    return status;
}

static OrtStatus *create_kernel(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info,
                                void **kernel) {
    (void)op, (void)api, (void)info;
    *kernel = &ort; /* there is nothing to keep */
    return NULL;
}

static const char *name(const OrtCustomOp *op) {
    (void)op;
    return "CustomOpOne";
}

static const char *provider(const OrtCustomOp *op) {
    (void)op;
    return NULL; /* the CPU's */
}

static size_t two(const OrtCustomOp *op) {
    (void)op;
    return 2;
}

static size_t one(const OrtCustomOp *op) {
    (void)op;
    return 1;
}

static ONNXTensorElementDataType floats(const OrtCustomOp *op, size_t i) {
    (void)op, (void)i;
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

static OrtCustomOpInputOutputCharacteristic required(const OrtCustomOp *op, size_t i) {
    (void)op, (void)i;
    return INPUT_OUTPUT_REQUIRED;
}

static OrtMemType memory(const OrtCustomOp *op, size_t i) {
    (void)op, (void)i;
    return OrtMemTypeDefault;
}

static int first_version(const OrtCustomOp *op) {
    (void)op;
    return 1;
}

static int last_version(const OrtCustomOp *op) {
    (void)op;
    return 1 << 20;
}

static const OrtCustomOp custom_op_one = {
    .version = 17,
    .GetName = name,
    .GetExecutionProviderType = provider,
    .GetInputType = floats,
    .GetInputTypeCount = two,
    .GetOutputType = floats,
    .GetOutputTypeCount = one,
    .KernelDestroy = destroy_kernel,
    .GetInputCharacteristic = required,
    .GetOutputCharacteristic = required,
    .GetInputMemoryType = memory,
    .CreateKernelV2 = create_kernel,
    .KernelComputeV2 = add,
    .GetStartVersion = first_version,
    .GetEndVersion = last_version,
};

__attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtSessionOptions *options,
                                                                    const OrtApiBase *base) {
    static OrtCustomOpDomain *domain; /* as long as the library: sessions refer to it */
    ort = base->GetApi(17);
    OrtStatus *status = domain ? NULL : ort->CreateCustomOpDomain("test.customop", &domain);
    if (!status) {
        status = ort->CustomOpDomain_Add(domain, &custom_op_one);
    }
    return status ? status : ort->AddCustomOpDomain(options, domain);
}
