import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

const root = fileURLToPath(new URL('..', import.meta.url))

export default defineConfig({
  root,
  resolve: {
    alias: [
      { find: /^roomful$/, replacement: `${root}dataplane/index.ts` },
      { find: /^roomful\/client$/, replacement: `${root}client/index.ts` },
    ],
  },
  test: {
    include: ['{shared,control,dataplane,client,examples,deploy,loadtest,test}/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // Longer than anything takes on a machine that is busy with other things: what must be quick is measured by the tests themselves.
    testTimeout: 180_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 60_000 } },
    maxWorkers: 2,
    coverage: {
      include: ['{shared,control,dataplane,client,examples,deploy,loadtest}/**/*.ts'],
      exclude: ['**/*.test.ts', '**/*suite.ts', '**/conformance.ts', '**/conformance/**'],
      reporter: ['text', 'text-summary'],
    },
  },
})
