import { fileURLToPath } from 'node:url'

/** What a page in one piece is made of. */
export interface PageParts {
  readonly script: string
  readonly style: string
}

/**
 * Makes a page from `main.tsx` and `main.css` of a folder, which takes esbuild: the build does so once, a process that runs from the sources when
 * it is asked.
 */
export async function bundlePage(folder: URL): Promise<PageParts> {
  const { build } = await import('esbuild')
  const { outputFiles } = await build({
    entryPoints: ['main.tsx', 'main.css'].map((file) => fileURLToPath(new URL(file, folder))),
    bundle: true,
    minify: true,
    write: false,
    outdir: 'page',
    format: 'esm',
    platform: 'browser',
    target: 'es2023',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
    logLevel: 'silent',
  })
  const text = (ending: string) => outputFiles.find(({ path }) => path.endsWith(ending))?.text ?? ''
  return { script: text('.js'), style: text('.css') }
}
