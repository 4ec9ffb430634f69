import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { anchorOf, listedPages, siteLink, sitePath } from '../pages.ts'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const base = process.env.SITE_BASE ?? '/'
const modules = fileURLToPath(new URL('../node_modules/', import.meta.url))

/** The sidebar lists the pages. Some READMEs are only for people who work on their folder. */
const LEFT_OUT = ['docs/README.md', 'test/', 'deploy/create/']
const isPage = (path: string): boolean =>
  path === 'docs/README.md' ||
  (path.endsWith('.md') && !LEFT_OUT.some((start) => path.startsWith(start)) && existsSync(root + path))

const sidebar = listedPages().map(({ text, items }) => ({
  text,
  items: [...items, ...(text === 'Reference' ? [{ text: 'Functions and types', link: '/api/' }] : [])],
}))

export default defineConfig({
  title: 'roomful',
  description: 'Multiplayer games in the browser: you write the rules, roomful keeps all players in sync.',
  lang: 'en',
  srcDir: '../..',
  ignoreDeadLinks: 'localhostLinks',
  srcExclude: LEFT_OUT.map((start) => (start.endsWith('/') ? `${start}**` : start)),
  outDir: './dist',
  cleanUrls: true,
  rewrites: sitePath,
  base,
  head: [['link', { rel: 'icon', href: `${base}logo.svg` }]],
  vite: {
    publicDir: fileURLToPath(new URL('../public/', import.meta.url)),
    // Pages are in a folder above the one in which vue is installed.
    resolve: {
      alias: [
        { find: /^vue$/, replacement: `${modules}vue/dist/vue.runtime.esm-bundler.js` },
        {
          find: /^vue\/server-renderer$/,
          replacement: `${modules}@vue/server-renderer/dist/server-renderer.esm-bundler.js`,
        },
      ],
    },
    build: { chunkSizeWarningLimit: 2000 },
  },
  markdown: {
    anchor: { slugify: anchorOf },
    languageAlias: { promql: 'sql' },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config(md) {
      // Braces in indented code, as in docstrings, are not expressions of Vue.
      md.renderer.rules.code_block = (tokens, index) =>
        `<pre v-pre tabindex="0"><code>${md.utils.escapeHtml(tokens[index].content)}</code></pre>\n`
      // A long name, such as that of a metric or an option, breaks between its words.
      md.renderer.rules.code_inline = (tokens, index) =>
        `<code v-pre>${md.utils.escapeHtml(tokens[index].content).replace(/(?<=_)(?=\w)|(?<=[a-z])(?=[A-Z])/g, '<wbr>')}</code>`
      // Pages link to each other as files of the repository. A link to another file becomes text.
      md.core.ruler.push('links', ({ tokens, env }) => {
        const page: string = (env.realPath ?? env.path).slice(root.length)
        for (const { children } of tokens) {
          const open: boolean[] = []
          for (const token of children ?? []) {
            const href = token.type === 'link_open' ? decodeURI(token.attrGet('href') ?? '') : ''
            const link = /^(\w+:|#|\/)/.test(href) ? href : siteLink(page, href, isPage)
            if (token.type === 'link_open') {
              open.push(link !== undefined)
              token.attrSet('href', link ?? '')
            }
            const stays = token.type === 'link_close' ? open.pop() : link !== undefined
            if (/^link_/.test(token.type) && !stays) token.type = 'text'
          }
        }
      })
    },
  },
  themeConfig: {
    logo: '/logo.svg',
    search: {
      provider: 'local',
      options: {
        miniSearch: {
          searchOptions: {
            // Who searches wants to use roomful. The function runs in the browser, so it uses nothing outside.
            boostDocument: (id: string) => (/\/(decisions|CHANGELOG|CONTRIBUTING|tour)/.test(id) ? 0.1 : 1),
          },
        },
      },
    },
    outline: { level: [2, 3] },
    nav: [
      { text: 'First game', link: '/guides/first-game' },
      ...sidebar.filter(({ text }) => ['Guides', 'Reference', 'Run'].includes(text)),
    ],
    sidebar,
    docFooter: { prev: 'Previous', next: 'Next' },
  },
})
