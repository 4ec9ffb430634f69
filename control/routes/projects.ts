import type { Endpoints } from '../endpoint.ts'
import type { Idempotency } from '../idempotency.ts'
import { type Projects, projectView } from '../projects.ts'
import { CreateProject, encodeCursor, PageQuery, Project, ProjectPage } from '../schemas.ts'

/** `POST /projects`, `GET /projects`. */
export function projectRoutes(
  endpoints: Endpoints,
  parts: { projects: Projects; idempotency: Idempotency },
): void {
  const { projects, idempotency } = parts

  endpoints.mount(
    {
      method: 'POST',
      path: '/projects',
      tag: 'Projects',
      summary: 'Create a project',
      description: 'A project has its own keys, tokens and rooms. It gets a built-in signing pair at once.',
      access: 'operator',
      body: CreateProject,
      idempotent: '24 hours',
      answer: { status: 201, description: 'The project.', schema: Project },
      problems: ['conflict'],
    },
    async ({ caller, body, path, idempotencyKey }) => {
      const plan = async () => {
        const { project, writes } = await projects.draft(body.name)
        return { writes, answer: projectView(project) }
      }
      const { answer } = await idempotency.run({ callerId: caller.id, path, body, idempotencyKey }, plan)
      return answer
    },
  )

  endpoints.mount(
    {
      method: 'GET',
      path: '/projects',
      tag: 'Projects',
      summary: 'List projects',
      description: 'Newest first, page by page.',
      access: 'operator',
      query: PageQuery,
      answer: { status: 200, description: 'One page of projects.', schema: ProjectPage },
      problems: [],
    },
    async ({ query }) => {
      const { projects: found, next } = await projects.page({ limit: query.limit, before: query.cursor })
      return { projects: found.map(projectView), next_cursor: encodeCursor(next) }
    },
  )
}
