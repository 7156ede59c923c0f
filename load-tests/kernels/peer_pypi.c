/* Peers that are Python packages, in an interpreter inside the bench: peer_pypi.py makes for a case and a form two functions, one that
 * computes and one that gives the output, and is asked for both here. The call into the interpreter, about a microsecond, is part of such a
 * peer's time. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "load-tests/kernels/bench.h"
#include <dlfcn.h>

typedef struct state {
    PyObject *compute, *output;
    int64_t bytes;
} state;

static void call(void *p)
{
    PyObject *r = PyObject_CallNoArgs(((state *)p)->compute);
    if (!r) { PyErr_Print(); }
    Py_XDECREF(r);
}

static void fetch(void *p, void *out)
{
    state *s = p;
    Py_buffer view;
    memset(out, 0, (size_t)s->bytes);
    PyObject *r = PyObject_CallNoArgs(s->output);
    if (r && !PyObject_GetBuffer(r, &view, PyBUF_C_CONTIGUOUS)) {
        if (view.len == s->bytes) { memcpy(out, view.buf, (size_t)view.len); }
        PyBuffer_Release(&view);
    }
    if (PyErr_Occurred()) { PyErr_Print(); }
    Py_XDECREF(r);
}

static void drop(void *p)
{
    state *s = p;
    Py_XDECREF(s->compute);
    Py_XDECREF(s->output);
    free(s);
}

/* Packages of C code find the interpreter's symbols only when they are global, and this object was loaded locally. */
static PyObject *module(void)
{
    static PyObject *m;
    static bool tried;
    Dl_info python;
    if (tried) { return m; }
    tried = true;
    if (!dladdr(&PyType_Type, &python) || !dlopen(python.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)) { return NULL; }
    Py_InitializeEx(0);
    /* Packages start children of theirs with sys.executable, which an embedded interpreter does not know. */
    PyRun_SimpleString("import os, sys; sys.path[:0] = os.environ['BENCH_PYTHON'].split(':'); sys.executable = sys.prefix + '/bin/python3'");
    m = PyImport_ImportModule("peer_pypi");
    if (!m) { PyErr_Print(); }
    return m;
}

static PyObject *described(const bench_case *c)
{
    PyObject *params = PyDict_New(), *inputs = PyList_New(c->nin);
    for (int i = 0; i < c->nparams; i++) {
        PyObject *v = PyLong_FromLongLong(c->params[i].value);
        PyDict_SetItemString(params, c->params[i].name, v);
        Py_DECREF(v);
    }
    for (int i = 0; i < c->nin; i++) { PyList_SET_ITEM(inputs, i, PyMemoryView_FromMemory(c->in[i], c->in_bytes[i], PyBUF_WRITE)); }
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i,s:N,s:N}", "op", c->op, "dtype", c->dtype, "layout", c->layout, "out_dtype", c->out_dtype,
                         "threads", c->threads, "params", params, "inputs", inputs);
}

static bool open_form(const bench_case *c, bench_run *run, const char *form)
{
    PyObject *m = module();
    if (!m) { return false; }
    PyObject *about = described(c), *pair = PyObject_CallMethod(m, "make", "sO", form, about);
    Py_XDECREF(about);
    if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        if (!pair) { PyErr_Print(); }
        Py_XDECREF(pair);
        return false;
    }
    state *s = calloc(1, sizeof *s);
    *s = (state){Py_NewRef(PyTuple_GetItem(pair, 0)), Py_NewRef(PyTuple_GetItem(pair, 1)), c->out_bytes};
    Py_DECREF(pair);
    *run = (bench_run){s, call, fetch, drop};
    return true;
}

static bool open_torch(const bench_case *c, bench_run *run) { return open_form(c, run, "torch"); }
static bool open_inductor(const bench_case *c, bench_run *run) { return open_form(c, run, "inductor"); }
static bool open_ort(const bench_case *c, bench_run *run) { return open_form(c, run, "onnxruntime"); }
static bool open_ort_plain(const bench_case *c, bench_run *run) { return open_form(c, run, "onnxruntime plain"); }

const bench_form *bench_forms(void)
{
    static const bench_form forms[] = {
        {"torch", open_torch}, {"inductor", open_inductor}, {"onnxruntime", open_ort}, {"onnxruntime plain", open_ort_plain}, {NULL, NULL}};
    return forms;
}
