/* The model called in process: what ONNX Runtime gives when nothing is in between. One thread, one
 * session, the same calls as a request of one row makes: wrap the input, run, drop the outputs.
 *
 *     inproc MODEL.onnx ROWS SECONDS */
#include <onnxruntime_c_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct model {
    const OrtApi *ort;
    OrtSession *session;
    OrtMemoryInfo *memory;
    OrtAllocator *allocator;
    char *input;
    char *outputs[16];
    size_t n_outputs;
    int64_t dims[8];
    size_t rank;
    float *data;
    size_t n_elements;
};

static void check(const struct model *model, OrtStatus *status) {
    if (!status) {
        return;
    }
    fprintf(stderr, "inproc: %s\n", model->ort->GetErrorMessage(status));
    exit(1);
}

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void open_session(struct model *model, const char *path) {
    const OrtApi *ort = model->ort;
    OrtEnv *env = NULL;
    OrtSessionOptions *options = NULL;
    check(model, ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "bench", &env));
    check(model, ort->CreateSessionOptions(&options));
    check(model, ort->SetIntraOpNumThreads(options, 1));
    check(model, ort->SetInterOpNumThreads(options, 1));
    check(model, ort->CreateSession(env, path, options, &model->session));
    check(model, ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &model->memory));
    check(model, ort->GetAllocatorWithDefaultOptions(&model->allocator));
}

static void describe(struct model *model, int64_t rows) {
    const OrtApi *ort = model->ort;
    check(model, ort->SessionGetOutputCount(model->session, &model->n_outputs));
    if (model->n_outputs > 16) {
        exit(1);
    }
    check(model, ort->SessionGetInputName(model->session, 0, model->allocator, &model->input));
    for (size_t i = 0; i < model->n_outputs; i++) {
        check(model,
              ort->SessionGetOutputName(model->session, i, model->allocator, &model->outputs[i]));
    }
    OrtTypeInfo *info = NULL;
    const OrtTensorTypeAndShapeInfo *shape = NULL;
    check(model, ort->SessionGetInputTypeInfo(model->session, 0, &info));
    check(model, ort->CastTypeInfoToTensorInfo(info, &shape));
    check(model, ort->GetDimensionsCount(shape, &model->rank));
    check(model, ort->GetDimensions(shape, model->dims, model->rank));
    model->dims[0] = rows;
    model->n_elements = 1;
    for (size_t i = 0; i < model->rank; i++) {
        model->n_elements *= (size_t)model->dims[i];
    }
    model->data = calloc(model->n_elements, sizeof(float));
    for (size_t i = 0; i < model->n_elements; i++) {
        model->data[i] = (float)(i % 17) / 17.0f;
    }
    ort->ReleaseTypeInfo(info);
}

static void run_once(struct model *model) {
    const OrtApi *ort = model->ort;
    OrtValue *input = NULL;
    OrtValue *outputs[16] = {NULL};
    check(model, ort->CreateTensorWithDataAsOrtValue(
                     model->memory, model->data, model->n_elements * sizeof(float), model->dims,
                     model->rank, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
    check(model, ort->Run(model->session, NULL, (const char *const *)&model->input,
                          (const OrtValue *const *)&input, 1, (const char *const *)model->outputs,
                          model->n_outputs, outputs));
    for (size_t i = 0; i < model->n_outputs; i++) {
        ort->ReleaseValue(outputs[i]);
    }
    ort->ReleaseValue(input);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: inproc MODEL.onnx ROWS SECONDS\n");
        return 2;
    }
    struct model model = {.ort = OrtGetApiBase()->GetApi(ORT_API_VERSION)};
    open_session(&model, argv[1]);
    describe(&model, atoll(argv[2]));
    for (int i = 0; i < 100; i++) {
        run_once(&model);
    }
    uint64_t n = 0;
    double start = now();
    double end = start + atof(argv[3]);
    while (now() < end) {
        run_once(&model);
        n++;
    }
    printf("{\"rate\":%.1f}\n", (double)n / (now() - start));
    return 0;
}
