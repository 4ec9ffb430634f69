import { mergeConfig } from 'vitest/config'
import base from '../vitest.config.ts'

const { file, source } = JSON.parse(process.env.MUTANT ?? '{}') as { file?: string; source?: string }

/** The tests with the source of one file replaced: MUTANT has both in JSON. The cache of modules on disk does not know of it. */
export default mergeConfig(base, {
  test: { experimental: { fsModuleCache: false } },
  plugins: [{ name: 'mutant', enforce: 'pre', load: (id: string) => (id === file ? source : undefined) }],
})
