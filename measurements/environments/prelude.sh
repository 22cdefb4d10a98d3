# Functions for the commands of cases.yaml.

# Install without dependencies, from the cache of uv where it can.
install() {
  uv pip install --quiet --no-deps --python "$ENV/bin/python" "$@"
}

# Install with dependencies, but never another torch.
install_all() {
  uv pip install --quiet --python "$ENV/bin/python" --override <(uv pip freeze --quiet \
    --python "$ENV/bin/python" | grep '^torch==') "$@"
}

uninstall() {
  uv pip uninstall --quiet --python "$ENV/bin/python" "$@"
}

# Put standard input in the place of a file, which other environments share.
replace() {
  cat >"$1.new"
  mv "$1.new" "$1"
}

# compile OUT FLAGS...: an extension out of standard input. What -D and -f leave alike is compiled
# once for each torch; the other flags are for the linker.
compile() {
  local out=$1 source key flag
  local compiling=() linking=()
  shift
  for flag; do
    case $flag in -D* | -f*) compiling+=("$flag") ;; *) linking+=("$flag") ;; esac
  done
  source=$(cat)
  key=$SHARED/$(printf '%s' "$source ${compiling[*]}" | md5sum | cut -c1-12)
  if [[ ! -e $key.o ]]; then
    mkdir -p "$SHARED"
    printf '%s\n' "$source" >"$key.cpp"
    g++ -c -fPIC -O0 -std=c++20 -w "$key.cpp" -o "$key.new" "${compiling[@]}" \
      -I"$SITE/torch/include" -I"$SITE/torch/include/torch/csrc/api/include" \
      -I"$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    mv "$key.new" "$key.o"
  fi
  mkdir -p "$(dirname "$out")"
  g++ -shared "$key.o" -o "$out" -L"$SITE/torch/lib" -ltorch -ltorch_cpu -lc10 \
    -Wl,--allow-shlib-undefined "${linking[@]}"
}

# operator OUT FLAGS...: an extension that registers an operator, for torch.ops.load_library.
operator() {
  compile "$@" <<'C'
#include <torch/library.h>
#include <ATen/ATen.h>
at::Tensor twice(const at::Tensor& x) { return x + x; }
TORCH_LIBRARY(reported, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
C
}

# module OUT NAME FLAGS...: a Python module that needs a library of torch.
module() {
  local out=$1 name=$2
  shift 2
  compile "$out" "$@" <<C
#include <Python.h>
#include <c10/core/Device.h>
static PyObject* device(PyObject*, PyObject*) {
  return PyUnicode_FromString(c10::Device("cpu").str().c_str());
}
static PyMethodDef methods[] = {{"device", device, METH_NOARGS, ""}, {0, 0, 0, 0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "$name", "", -1, methods};
PyMODINIT_FUNC PyInit_$name() { return PyModule_Create(&definition); }
C
}

# distribution NAME VERSION [REQUIREMENT]: what lies in $SITE/NAME becomes a package, whose wheel
# pip finds again.
distribution() {
  python "$PACK" "$SITE" "$HOME/wheels" "$@"
}
