import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Whole systems first: a long file that begins last keeps all but one worker waiting. */
class SystemsFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isSystem = ({ moduleId }: TestSpecification) => moduleId.startsWith(`${root}test/`)
    return [...sorted.filter(isSystem), ...sorted.filter((file) => !isSystem(file))]
  }
}

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
    // One more than the cores of a small machine: those with processes of their own mostly wait.
    maxWorkers: 3,
    sequence: { sequencer: SystemsFirst },
    coverage: {
      include: ['{shared,control,dataplane,client,examples,deploy,loadtest}/**/*.ts'],
      exclude: ['**/*.test.ts', '**/*suite.ts', '**/conformance.ts', '**/conformance/**'],
      reporter: ['text', 'text-summary'],
    },
  },
})
