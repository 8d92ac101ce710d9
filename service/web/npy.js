// Reads the .npy file of a dictionary: little-endian float32, two dimensions, row by row.

const MAGIC = "\x93NUMPY";

/** `{rows, cols, row(i)}`; throws if the file is anything else. */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  if (String.fromCharCode(...bytes.subarray(0, 6)) !== MAGIC) throw new Error("not a .npy file");
  const long = view.getUint8(6) > 1;
  const start = long ? 12 : 10;
  const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = String.fromCharCode(...bytes.subarray(start, start + length));
  const shape = header.match(/'shape': \((\d+), (\d+)\)/);
  if (!header.includes("'<f4'") || !header.includes("'fortran_order': False") || !shape) {
    throw new Error(`not a float32 matrix: ${header}`);
  }
  const [rows, cols] = [Number(shape[1]), Number(shape[2])];
  // A copy, because a view would have to begin at a multiple of four bytes.
  const values = new Float32Array(buffer.slice(start + length));
  return { rows, cols, row: (i) => values.subarray(i * cols, (i + 1) * cols) };
}
