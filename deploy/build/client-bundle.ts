import { brotliCompressSync, gzipSync } from 'node:zlib'
import { build } from 'esbuild'

/** The SDK for browsers in one file, and how large it is in bytes. */
export interface ClientBundle {
  readonly code: string
  readonly minified: number
  readonly gzip: number
  readonly brotli: number
}

/** Bundles `entry`, a file path, as one minified ES module. Rejects with what esbuild has to say. */
export async function bundleClient(entry: string): Promise<ClientBundle> {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    legalComments: 'none',
    logLevel: 'silent',
  })
  const code = result.outputFiles[0]!.text
  return {
    code,
    minified: Buffer.byteLength(code),
    gzip: gzipSync(code, { level: 9 }).length,
    brotli: brotliCompressSync(code).length,
  }
}

/** `41.2 KB minified, 14.1 KB gzip, 12.6 KB brotli`. */
export const describeSize = ({ minified, gzip, brotli }: ClientBundle): string =>
  `${kilobytes(minified)} minified, ${kilobytes(gzip)} gzip, ${kilobytes(brotli)} brotli`

const kilobytes = (bytes: number): string => `${(bytes / 1024).toFixed(1)} KB`
