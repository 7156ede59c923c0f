/* Puts into a folder that `kiln compile MODEL --target GPU -o DIR` wrote, in the place of the kernels' images, what libcuda_emu.so executes: the same
 * kernels' texts compiled for this host. Usage: emu-images DIR (an absolute path), in the repository's root. */
#include "tests/arena.h"
#include "tests/emu/image.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kiln_arena *arena;

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p = f ? malloc(1 << 24) : NULL;
    *n = p ? fread(p, 1, (1 << 24) - 1, f) : 0;
    if (f) fclose(f);
    if (!p || !*n) fprintf(stderr, "emu-images: %s cannot be read\n", path), exit(1);
    p[*n] = 0;
    return p;
}

static const char *text(const cJSON *o, const char *name)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
    return s ? s : "";
}

static void put_digest(cJSON *o, const char *name, const char *bytes, size_t n)
{
    uint8_t digest[32];
    char hex[65];
    kiln_sha256(bytes, n, digest);
    kiln_hex(digest, 32, hex);
    cJSON_DeleteItemFromObject(o, name);
    cJSON_AddStringToObject(o, name, hex);
}

static void replace(const char *dir, cJSON *files, cJSON *kernel, int i, const kiln_hw *hw)
{
    char path[600], name[40];
    size_t n;
    kiln_request *r;
    kiln_kernel *k;
    kiln_diag d = {0};
    const char *program = text(kernel, "program"), *trace = text(kernel, "trace");
    if (kiln_request_text(arena, (kiln_bytes){program, strlen(program)}, (kiln_bytes){"", 0}, NULL, &r, &d) ||
        kiln_generate(arena, r->program, hw, (kiln_bytes){trace, strlen(trace)}, &k, &d))
        fprintf(stderr, "emu-images: kernel %d: %s\n", i, d.message), exit(1);
    snprintf(path, sizeof path, "%s/kernels/%d", dir, i);
    if (!emu_image("cc", k, path)) fprintf(stderr, "emu-images: kernel %d does not compile\n", i), exit(1);
    strcat(path, ".image");
    char *image = slurp(path, &n);
    snprintf(name, sizeof name, "kernels/%d.cubin", i);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(image, 1, n, f) != n || fclose(f)) exit(1);
    cJSON *about = cJSON_GetObjectItem(kernel, "image");
    cJSON_ReplaceItemInObject(about, "kind", cJSON_CreateString("cubin"));
    put_digest(about, "sha256", image, n);
    put_digest(files, name, image, n);
    free(image);
}

int main(int argc, char **argv)
{
    char path[600];
    size_t n;
    kiln_hw *hw;
    kiln_diag d = {0};
    if (argc != 2 || argv[1][0] != '/') return fprintf(stderr, "usage: emu-images /DIR\n"), 2;
    arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    snprintf(path, sizeof path, "%s/model.json", argv[1]);
    char *json = slurp(path, &n);
    cJSON *model = cJSON_Parse(json), *manifest = cJSON_GetObjectItem(model, "manifest"), *kernel;
    char spec[600];
    snprintf(spec, sizeof spec, "hwspecs/%s.json", text(cJSON_GetObjectItem(manifest, "target"), "id"));
    char *hardware = slurp(spec, &n);
    if (kiln_hw_parse(arena, (kiln_bytes){hardware, n}, &hw, &d)) return fprintf(stderr, "emu-images: %s\n", d.message), 1;
    int i = 0;
    cJSON_ArrayForEach(kernel, cJSON_GetObjectItem(manifest, "kernels")) replace(argv[1], cJSON_GetObjectItem(model, "files"), kernel, i++, hw);
    char *out = cJSON_Print(model);
    FILE *f = fopen(path, "wb");
    bool ok = f && fputs(out, f) >= 0;
    if (f) ok = !fclose(f) && ok;
    free(out);
    free(json);
    free(hardware);
    cJSON_Delete(model);
    kiln_arena_close(arena);
    return ok ? 0 : 1;
}
