import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Names of the longest files. They start first: a long file that starts last keeps the other workers waiting. */
const LONGEST = [
  'sim',
  'documented-deployment',
  'deploy-small',
  'balancer-servers',
  'attack',
  'package',
  'balancer',
  'site',
  'samples',
  'explore',
  'conformance',
  'pages',
  'loadtest-scenarios',
  'admin-page',
  'image',
  'alerts',
  'readme',
  'workers',
  'loadtest-ending',
  'chaos',
  'bad-rooms',
  'cluster-command',
  '6-store-outage-freezes-rooms',
]
const ORDER = ['long', 'system', 'integration', 'unit']

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project, moduleId }: TestSpecification): number => {
      const [name = ''] = moduleId.slice(moduleId.lastIndexOf('/') + 1).split('.')
      const place = LONGEST.indexOf(name)
      return ORDER.indexOf(project.name) * 100 + (place < 0 ? LONGEST.length : place)
    }
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b))
  }
}

/** Files with random histories. With `npm run test:long`, they play several times as many (`test/support/run-length.ts`). */
const TWO_LENGTHS = [
  'bad-rooms.system.test.ts',
  'delta.test.ts',
  'explore.system.test.ts',
  'fast-socket.test.ts',
  'hidden-layers.test.ts',
  'live-tree.test.ts',
  'restore.test.ts',
  'resume.test.ts',
  'room-model.test.ts',
  'sim.system.test.ts',
  'tokens.test.ts',
]

const anywhere = (name: string) =>
  `{shared,control,dataplane,client,server,examples,deploy,docs,loadtest,test}/**/${name}`

function tier(name: string, include: string[], { exclude = [] as string[], fullLength = false } = {}) {
  return {
    extends: true as const,
    root,
    test: {
      name,
      include: include.map(anywhere),
      exclude: exclude.map(anywhere),
      provide: { fullLength },
      // Unit tests share their workers, because no module has state.
      isolate: name !== 'unit',
    },
  }
}

export default defineConfig({
  root,
  resolve: {
    alias: [
      { find: /^roomful$/, replacement: `${root}dataplane/index.ts` },
      { find: /^roomful\/client$/, replacement: `${root}client/index.ts` },
      { find: /^roomful\/client\/motion$/, replacement: `${root}client/motion.ts` },
      { find: /^roomful\/client\/queue$/, replacement: `${root}client/queue.ts` },
      { find: /^roomful\/postgres$/, replacement: `${root}dataplane/features/saves/postgres.ts` },
      { find: /^roomful\/react$/, replacement: `${root}client/react.ts` },
      { find: /^roomful\/server$/, replacement: `${root}server/index.ts` },
      { find: /^roomful\/test$/, replacement: `${root}test/kit/index.ts` },
    ],
  },
  test: {
    // The name of a file decides its tier.
    projects: [
      tier('unit', ['*.test.ts'], {
        exclude: ['*.integration.test.ts', '*.system.test.ts', '*.long.test.ts'],
      }),
      tier('integration', ['*.integration.test.ts']),
      tier('system', ['*.system.test.ts']),
      tier('long', ['*.long.test.ts', ...TWO_LENGTHS], { fullLength: true }),
    ],
    globalSetup: ['test/support/global-setup.ts'],
    // Long enough for a busy machine. Tests with a time limit measure it themselves.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 180_000 } },
    // One more than the cores of a small machine: files that start processes mostly wait.
    maxWorkers: 5,
    // The tiers have most modules in common.
    experimental: { fsModuleCache: true },
    sequence: { sequencer: LongestFirst },
    coverage: {
      include: ['{shared,control,dataplane,client,server,examples,deploy,loadtest}/**/*.ts'],
      exclude: ['**/*.test.ts', '**/*suite.ts', '**/testing/**', '**/conformance/**'],
      reporter: ['text', 'text-summary'],
    },
  },
})
